"""docs/reference/refusals.md: each row's settings are run, and its message is what offsim says.

Words in backquotes above a table are passed too, before the settings of a row: a scenario and
its keys (`file.yaml` `key=value`), lines of an Axolotl file (`key: value`), or overrides of verl
(`a.b=value`). BLESS=1 fills in the messages.
"""

import os
import re

import pytest

from conftest import ROOT, one_error, sets

PAGE = ROOT / "docs/reference/refusals.md"
SHAPE = ["--hf-config", "docs/examples/verl-qwen3-8b.json", "--world-size", "8"]
QUOTED = re.compile(r"`([^`]*)`")


def rows_of(text):
    """(line number, base, settings, message) of each row."""
    base = None
    for number, line in enumerate(text.splitlines()):
        if line.startswith("Beside "):
            base = tuple(QUOTED.findall(line))
        elif line.startswith("| `"):
            settings, message = re.fullmatch(r"\| (.*?) \|(.*)\|", line).groups()
            yield number, base, tuple(QUOTED.findall(settings)), message.strip()


ROWS = list(rows_of(PAGE.read_text(encoding="utf-8")))


def arguments(base, settings):
    """The command line and standard input that give a row."""
    if base[0].endswith(".yaml"):
        return ["predict", "--print-scenario", base[0], *sets(*base[1:], *settings)], ""
    if ": " in base[0]:
        lines = dict(setting.split(": ", 1) for setting in base + settings)
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        return ["predict", "--print-scenario", "--axolotl", "-", *SHAPE], text
    return ["predict", "--print-scenario", "--verl", "-", *SHAPE], "python3 -m verl " + " ".join(base + settings)


def messages(run):
    return [re.sub(r"^.*?(note|error): ", r"\1: ", line) for line in run.stderr.splitlines()]


def said(offsim, base, settings):
    """The error without its place, or the notes that the base alone does not have."""
    command, stdin = arguments(base, settings)
    run = offsim(*command, stdin=stdin)
    if run.status != 0:
        error = one_error(run, status=2)
        assert not error.startswith("offsim: "), f"no place: {error}"
        return error.split("error: ", 1)[1]
    command, stdin = arguments(base, ())
    usual = messages(offsim(*command, stdin=stdin))
    return "; ".join(f"*note* {line.removeprefix('note: ')}" for line in messages(run) if line not in usual)


@pytest.mark.skipif(not os.environ.get("BLESS"), reason="BLESS=1 fills in the messages")
def test_bless(offsim):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for number, base, settings, _ in ROWS:
        listed = " ".join(f"`{setting}`" for setting in settings)
        lines[number] = f"| {listed} | {said(offsim, base, settings)} |"
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.skipif(bool(os.environ.get("BLESS")), reason="BLESS=1 fills in the messages")
@pytest.mark.parametrize("base, settings, message", [pytest.param(*row[1:], id=" ".join(row[2])) for row in ROWS])
def test_row(offsim, base, settings, message):
    assert message and said(offsim, base, settings) == message
