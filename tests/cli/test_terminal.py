"""What a terminal changes: widths of tables and texts, and colours."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

PROXY = "docs/examples/deepseek-v3-proxy-h100.yaml"
HF = "docs/examples/hf-16-layers.yaml"
LAYER = "docs/examples/one-layer.yaml"
TINY = "docs/examples/tiny-llama.yaml"
REPORTS = {
    "predict": ["predict", PROXY],
    "systems": ["predict", HF, "--compare-systems"],
    "suggestions": ["predict", HF, "--suggest"],
    "tune": ["tune", LAYER],
    "check": ["check", PROXY],
    "run": ["run", "--on", "ref", TINY, "--steps", "2"],
    "help": ["--help"],
    "predict --help": ["predict", "--help"],
    "tune --help": ["tune", "--help"],
}


def may_be_long(line):
    """What is pasted, what is a line of a plan or of a usage, and what has one word beside its head."""
    return (" --" in line or re.match(r"usage:|       offsim |  SCENARIO", line)
            or re.match(r"  (first|second|buffer|becomes) ", line) or len(line.rsplit(None, 1)[-1]) > 30)


@pytest.mark.parametrize("report, columns", [(report, columns) for report in REPORTS for columns in (60, 80)
                                             if (report, columns) != ("suggestions", 60)])  # its names alone have 53
def test_lines_are_as_long_as_the_terminal_is_wide(offsim, report, columns):
    wide, narrow = offsim(*REPORTS[report]).stdout, offsim(*REPORTS[report], COLUMNS=str(columns)).stdout
    assert wide != narrow
    assert not [line for line in narrow.splitlines() if len(line) > columns and not may_be_long(line)]
    assert set(wide.split()) == set(narrow.split())


def test_parts_of_a_table_have_all_its_cells(offsim):
    """Each with the names of its rows, and under which head a column is."""
    wide = offsim("predict", PROXY, "--brief").stdout.split("\n\n")[0].splitlines()
    first, second = offsim("predict", PROXY, "--brief", COLUMNS="50").stdout.split("\n\n")[:2]
    parts = [first.splitlines()[-6:], second.splitlines()]
    rows = [[*left.split(), *right.split()[1:]] for left, right in zip(*(part[2:] for part in parts))]
    assert rows == [line.split() for line in wide[3:]] and len(rows) == 4
    assert parts[0][0].split() == ["peak:"] and parts[1][0].split() == wide[1].split()[1:]
    third = offsim("predict", PROXY, "--brief", COLUMNS="40").stdout.split("\n\n")[1].splitlines()
    assert third[0].split()[0] == "peak:" and third[1].split()[:2] == ["rank", "reserved"]


@pytest.mark.parametrize("columns", ["1", "0", "-5", "", "wide"])
def test_odd_widths(offsim, columns):
    """None is no width; less than a table can have is taken as the least."""
    text = offsim("predict", LAYER, "--brief", check=0, COLUMNS=columns).stdout
    assert (text == offsim("predict", LAYER, "--brief").stdout) == (columns != "1")


def on_terminal(offsim, arguments, columns, stream="stdout", **variables):
    """What a terminal of that width gets, from standard output or error."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm"} | variables
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: follower}
    process = subprocess.Popen([offsim.path, *arguments], **streams, cwd=offsim.path.parents[2], env=environment)
    os.close(follower)
    text = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    process.communicate()
    os.close(leader)
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("arguments, left", [
    (["tune", HF], "left at most"),
    (["sweep", LAYER, "--over", "num_layers=1|2|3|4", "--over", "seq_length=1024|2048"], "left"),
])
def test_many_settings_show_how_long_they_take(offsim, arguments, left):
    """On one line, which is cleared in the end."""
    lines = on_terminal(offsim, [*arguments, "--threads", "1"], 60, "stderr").rstrip("\n").split("\r")
    assert any(re.match(rf"\d+/\d+  [\d.]+ a second, \d+ (s|min) {left} *$", line) for line in lines)
    assert max(len(line.split("\n")[-1]) for line in lines) < 60 and lines[-2:] == [" " * 59, ""]


def test_a_terminal_has_width_and_colours(offsim):
    text = on_terminal(offsim, REPORTS["predict"], 80)
    assert "\033[1;31mNOT SAFE\033[0m:" in text
    plain = re.sub(r"\033\[[0-9;]*m", "", text)
    assert plain == offsim(*REPORTS["predict"], COLUMNS="80").stdout
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}):
        assert on_terminal(offsim, REPORTS["predict"], 80, **variables) == plain
    assert on_terminal(offsim, REPORTS["predict"], 80, COLUMNS="60").count("\n") > text.count("\n")


def test_colours_elsewhere_only_on_demand(offsim, tmp_path):
    plain, forced = offsim(*REPORTS["predict"]), offsim(*REPORTS["predict"], FORCE_COLOR="1")
    assert "\033" not in plain.stdout and re.sub(r"\033\[[0-9;]*m", "", forced.stdout) == plain.stdout != forced.stdout
    assert "\033[1;31merror:\033[0m" in offsim("predict", "no-such-file", FORCE_COLOR="1").stderr
    assert "\033[1;36mnote:\033[0m" in offsim("predict", HF, FORCE_COLOR="1").stderr
    offsim(*REPORTS["predict"], "--html", tmp_path / "page.html", FORCE_COLOR="1", COLUMNS="60")
    offsim(*REPORTS["predict"], "--html", tmp_path / "other.html")
    assert (tmp_path / "page.html").read_text() == (tmp_path / "other.html").read_text()
    assert json.loads(offsim("predict", LAYER, "--json", FORCE_COLOR="1", COLUMNS="60").stdout)


def test_control_characters_of_a_name(offsim, tmp_path):
    """They take room as other characters do; only what is a style's sequence does not."""
    for name in ("a\033", "b\033[", "c\033[1;", "d\033[1;31m"):
        (tmp_path / name).write_text(offsim("predict", LAYER, "--json").stdout)
        text = offsim("predict", LAYER, "--brief", "--against", tmp_path / name, check=0, COLUMNS="60").stdout
        assert name in text
