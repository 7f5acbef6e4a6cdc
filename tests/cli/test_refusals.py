"""docs/reference/refusals.md: each row's settings are run, its message is what offsim says, and what its
third column gives mends it.

What is in backquotes above a table is given too, before the settings of a row. The first of them says
what they are:

    `file.yaml`        a scenario; then keys of it (`key=value`)
    `key: value`       lines of an Axolotl file
    `a.b=value`        overrides of verl
    `"key": value`     members of a Hugging Face config.json
    `--flag value`     flags of Megatron-LM's command; what does not begin with "--" is a line of the script before it

In all of them `offsim --option value` gives options to offsim itself. A third column, "what to do next", is
text. If it has settings in backquotes, the row is run again with them, and nothing may be wrong any more.
BLESS=1 fills in the messages.
"""

import json
import os
import re

import pytest

from conftest import ROOT, sets

PAGE = ROOT / "docs/reference/refusals.md"
SHAPE = ["--hf-config", "docs/examples/verl-qwen3-8b.json", "--world-size", "8"]
QUOTED = re.compile(r"`([^`]*)`")
OWN = "offsim "


def rows_of(text):
    """(line number, base, settings, message, what to do next) of each row; None if the table has no third column."""
    base = None
    for number, line in enumerate(text.splitlines()):
        if line.startswith("Beside "):
            base = tuple(QUOTED.findall(line))
        elif line.startswith("| `"):
            settings, message, mend = re.fullmatch(r"\| (.*?) \|([^|]*)\|(?: ([^|]+) \|)?", line).groups()
            yield number, base, tuple(QUOTED.findall(settings)), message.strip(), mend


ROWS = list(rows_of(PAGE.read_text(encoding="utf-8")))
MENDED = [row for row in ROWS if row[4] is not None and QUOTED.search(row[4])]


def scenario(base, settings):
    keys = dict(setting.split("=", 1) for setting in base[1:] + settings)
    return [base[0], *sets(*(f"{key}={value}" for key, value in keys.items()))], ""


def axolotl(base, settings):
    lines = dict(setting.split(": ", 1) for setting in base + settings)
    return ["--axolotl", "-", *SHAPE], "".join(f"{key}: {value}\n" for key, value in lines.items())


def verl(base, settings):
    return ["--verl", "-", *SHAPE], "python3 -m verl " + " ".join(base + settings)


def hugging_face(base, settings):
    members = dict(setting.split(": ", 1) for setting in base + settings)
    return ["--hf-config", "-"], "{" + ", ".join(f"{key}: {value}" for key, value in members.items()) + "}"


def megatron(base, settings):
    flags = [setting for setting in base + settings if setting.startswith("--")]
    lines = [setting for setting in base + settings if not setting.startswith("--")]
    return ["--megatron-args", "-"], "\n".join([*lines, " ".join(["python pretrain_gpt.py", *flags])]) + "\n"


def script(base, settings):
    return ["--megatron-args", "-"], "\n".join(base + settings) + "\n"


def reader_of(first):
    if first.startswith("#!"):
        return script
    if first.endswith(".yaml"):
        return scenario
    if first.startswith("--"):
        return megatron
    if first.startswith('"'):
        return hugging_face
    return axolotl if ": " in first else verl


def arguments(base, settings):
    """The command line and standard input that give a row."""
    own = [word for setting in base + settings if setting.startswith(OWN) for word in setting.split()[1:]]
    others = [tuple(setting for setting in some if not setting.startswith(OWN)) for some in (base, settings)]
    command, stdin = reader_of(base[0])(*others)
    return ["predict", "--print-scenario", *command, *own], stdin


def messages(run):
    return [re.sub(r"^.*?(note|error): ", r"\1: ", line) for line in run.stderr.splitlines()]


def errors(run):
    """Every error without its place, which it has unless it is about what was not given or takes too much."""
    lines = [line for line in run.stderr.splitlines() if "error: " in line]
    assert run.status in (2, 3) and lines, run.stderr
    nowhere = [line for line in lines if line.startswith("offsim: ") and "not given" not in line]
    assert run.status == 3 or not nowhere, f"no place: {nowhere}"
    return "; ".join(line.split("error: ", 1)[1] for line in lines)


def said(offsim, base, settings):
    """The errors, or the notes that the base alone does not have."""
    command, stdin = arguments(base, settings)
    run = offsim(*command, stdin=stdin)
    if run.status != 0:
        return errors(run)
    command, stdin = arguments(base, ())
    usual = messages(offsim(*command, stdin=stdin))
    return "; ".join(f"*note* {line.removeprefix('note: ')}" for line in messages(run) if line not in usual)


@pytest.mark.skipif(not os.environ.get("BLESS"), reason="BLESS=1 fills in the messages")
def test_bless(offsim):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for number, base, settings, _, mend in ROWS:
        listed = " ".join(f"`{setting}`" for setting in settings)
        lines[number] = f"| {listed} | {said(offsim, base, settings)} |" + (f" {mend} |" if mend is not None else "")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.skipif(bool(os.environ.get("BLESS")), reason="BLESS=1 fills in the messages")
@pytest.mark.parametrize("base, settings, message", [pytest.param(*row[1:4], id=" ".join(row[2])) for row in ROWS])
def test_row(offsim, base, settings, message):
    assert message and said(offsim, base, settings) == message


@pytest.mark.parametrize("base, settings, message, mend", [pytest.param(*row[1:], id=" ".join(row[2])) for row in MENDED])
def test_what_to_do_next_mends_it(offsim, base, settings, message, mend):
    """The run is accepted, and what was said of it is said no more."""
    command, stdin = arguments(base, settings + tuple(QUOTED.findall(mend)))
    run = offsim(*command, stdin=stdin)
    assert run.status == 0, run.stderr
    left = [line for line in messages(run) if line.replace("note: ", "*note* ", 1) in message]
    assert not left, left


def test_every_kind_of_file_has_rows_with_what_to_do_next():
    """Nearly all rows say what to do next, some for each reader."""
    advised = [row for row in ROWS if row[4] is not None]
    assert len(advised) >= 150
    assert {reader_of(row[1][0]) for row in advised} == {scenario, axolotl, verl, hugging_face, megatron}
