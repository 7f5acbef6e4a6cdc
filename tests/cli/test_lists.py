"""Names that the program lists are names that it takes, and all of them."""

import re

import pytest

from conftest import ROOT


def names(offsim, option):
    return [line.split()[0] for line in offsim(option, check=0).stdout.splitlines()]


def test_machines(offsim):
    listed = names(offsim, "--list-machines")
    assert sorted(listed) == sorted(path.stem for path in ROOT.glob("sim/machine/presets/*.yaml"))
    assert offsim("predict", "--machine", listed[0], "--brief", "docs/examples/one-layer.yaml").status == 0


@pytest.mark.parametrize("option, key", [("--list-systems", "system"), ("--list-modules", "offload_modules"),
                                         ("--list-modules", "recompute_modules")])
def test_words_are_those_of_the_reference(offsim, option, key):
    row = re.search(rf"^\| `{key}` \|([^|]*)\|", (ROOT / "docs/reference/scenario.md").read_text(), re.M)[1]
    documented = set(re.findall(r"`(\w+)`", row))
    if option == "--list-systems":
        assert set(names(offsim, option)) == documented
    else:
        lines = dict(line.split(": ", 1) for line in offsim(option, check=0).stdout.splitlines())
        assert set(lines[key].split()) == documented
