"""The copies and waits of `offsim plan` under paged_stash and megatron_pr1752 in the order that Megatron-LM's own files issued on a
stub of torch (tests/data/paged_stash.json and megatron_pr1752.json, recorded by tests/peers/paged_stash.py and megatron_pr1752.py)."""

import json
import re

import pytest

from conftest import ROOT, sets
from stub_orders import LayerReader

STASH = json.loads((ROOT / "tests/data/paged_stash.json").read_text())
PR1752 = json.loads((ROOT / "tests/data/megatron_pr1752.json").read_text())
PLACE = re.compile(r"(%\d+)\{\w+\+(\d+):")


class StashReader(LayerReader):
    """Tensors are packed into places of arenas that stay."""

    copying = ("pack",)

    def __init__(self, text):
        self.packed, self.numbers = {}, 0
        super().__init__(text)

    def kernel(self, stream, rest):
        super().kernel(stream, rest)
        if stream != "pack":
            return
        source, destination = PLACE.findall(rest)
        self.copies["pack"] = self.copies.get("pack", 0) + 1
        if source in self.packed:
            self.events.append(["unpack", self.packed.pop(source)])
        else:
            self.events.append(["pack", self.numbers])
            self.packed[destination] = self.numbers
            self.numbers += 1


def passes_of(text):
    """[direction, micro-batch, chunk]."""
    return [[direction, int(m), int(c)] for direction, m, c in re.findall(r"^(forward|backward) m(\d+) c(\d+)$", text, re.M)]


def plan_of(offsim, example, job):
    return offsim("plan", f"docs/examples/{example}.yaml", "--rank", job["rank"], *sets(*job["settings"]), check=0).stdout


def name_of(job):
    return "-".join([*job["settings"], f"rank={job['rank']}"])


@pytest.mark.parametrize("job", STASH, ids=name_of)
def test_order_is_that_of_the_paged_stash(offsim, job):
    """The host waits for exchanges and losses, never for the stash."""
    text = plan_of(offsim, "paged-stash", job)
    assert passes_of(text) == job["schedule"]
    assert [event for event in StashReader(text).events if event[0] != "sync"] == job["order"]


@pytest.mark.parametrize("job", PR1752, ids=name_of)
def test_order_is_that_of_pr1752(offsim, job):
    """A wait for copies of the step before is not in a plan."""
    text = plan_of(offsim, "pr1752", job)
    assert passes_of(text) == job["schedule"]
    assert LayerReader(text).events == [e for e in job["order"] if not (e[:2] == ["wait", "compute"] and e[3] == 0)]
