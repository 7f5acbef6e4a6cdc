"""Offload system deepspeed: its copies, marks and waits are those of DeepSpeed's own engine (tests/peers/deepspeed_offload.py)."""

import json
import re

import pytest

from conftest import ROOT, sets

RECORDED = json.loads((ROOT / "tests/data/deepspeed_offload.json").read_text())
STREAMS = {"d2h": "copies", "compute": "compute"}


def events_of(plan):
    """As the recorder's log; an input's number is that of its host buffer. A mark is a part of a later free."""
    found, number, device, recorded = [], {}, {}, {}
    for line in plan.splitlines():
        words = line.split()
        if words[:2] == ["record", "d2h"] or words[:2] == ["record", "compute"]:
            recorded[words[2]] = words[1]
        elif words[:1] == ["wait"]:
            kind = "join" if words[1] == "d2h" else "wait"
            found.append([kind, STREAMS[words[1]], STREAMS[recorded[words[2]]]])
        elif words[:1] == ["d2h"]:
            number[words[4]] = device[words[2]] = len(number)
            found.append(["d2h", STREAMS[words[1]], number[words[4]]])
        elif words[:1] == ["h2d"]:
            device[words[4]] = number[words[2]]
            found.append(["h2d", STREAMS[words[1]], number[words[2]]])
        elif (free := re.fullmatch(r"  free +\w+ +(%\d+) after (\w+)", line)) and free[1] in device:
            found.append(["mark", device[free[1]], STREAMS[free[2]]])
    return found


@pytest.mark.parametrize("run", RECORDED["runs"], ids=lambda run: f"{run['layers']} layers")
def test_the_same_events(offsim, run):
    plan = offsim("plan", "docs/examples/hf-checkpoints.yaml", *sets("system=deepspeed", f"num_layers={run['layers']}"), check=0)
    found = events_of(plan.stdout)
    assert [event for event in found if event[0] != "mark"] == [event for event in run["events"] if event[0] != "mark"]
    assert sorted(event for event in found if event[0] == "mark") == sorted(event for event in run["events"] if event[0] == "mark")
