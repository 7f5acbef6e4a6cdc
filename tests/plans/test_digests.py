"""Nothing changes by accident: digests of what offsim answers over scenarios of every system.

Each row of tests/data/digests.jsonl is a small scenario, drawn once as tests/properties draws them, and the SHA-256 of
each answer, which may be a refusal. A digest says that something changed, not that it was right: plans, findings and
figures have tests of their own. Where a change is meant, BLESS=1 takes the new answers, and the commit says why they
changed.
"""

import hashlib
import json
import os

import pytest

from conftest import ROOT

TABLE = ROOT / "tests/data/digests.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
PART = 8  # rows of a test, so that tests share the cores
COMMANDS = {
    "plan": ["plan"],
    "first": ["plan", "--iteration", "warmup"],
    "check": ["check"],
    "predict": ["predict", "--json"],
}


def answer(offsim, command, scenario):
    run = offsim(*COMMANDS[command], "-", stdin=json.dumps(scenario))
    assert run.status in (0, 1, 2), f"{command} of {json.dumps(scenario)}\n{run.stderr}"
    text = run.stderr if run.status == 2 else run.stdout
    if command == "predict" and run.status != 2:
        prediction = json.loads(text)
        del prediction["scenario"]  # every key: a new one would change every digest
        text = json.dumps(prediction)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.skipif("BLESS" not in os.environ, reason="BLESS=1 writes the table")
def test_bless(offsim):
    for row in ROWS:
        row["digests"] = {command: answer(offsim, command, row["scenario"]) for command in row["digests"]}
    TABLE.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in ROWS))


@pytest.mark.skipif("BLESS" in os.environ, reason="test_bless writes the table")
@pytest.mark.parametrize("first", range(0, len(ROWS), PART))
def test_same_answers(first, offsim):
    changed = []
    for number, row in enumerate(ROWS[first:first + PART], first + 1):
        changed += [f"row {number}: {command}" for command, digest in row["digests"].items()
                    if answer(offsim, command, row["scenario"]) != digest]
    assert not changed, "other answers than before (BLESS=1 accepts them)"
