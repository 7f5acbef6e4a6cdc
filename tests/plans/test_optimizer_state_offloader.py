"""The copies of `offsim plan` with offload_optimizer_states in the order that Megatron-LM's OptimizerStateOffloader issued on a
stub of torch (tests/data/optimizer_state_offloader.json, recorded by tests/peers/optimizer_state_offloader.py)."""

import json
import re

import pytest

from conftest import ROOT, sets

RECORDED = json.loads((ROOT / "tests/data/optimizer_state_offloader.json").read_text())
NAMES = "exp_avg_sq|exp_avg|master_param|main_param"
BASE = ["num_layers=1", "use_distributed_optimizer=true", "offload_optimizer_states=true",
        "megatron_day=2026-08-17"]
MADE = re.compile(rf"  (resident|alloc) +\w+ +(%\d+) ({NAMES}) ")
LINE = re.compile(r"  (\w+) +(\w+) +(.*)")


def issued(text):
    """The events of the recorded form, but for marks, and the buffers that were freed without one."""
    events, state, last, recorded, unmarked = [], {}, {}, {}, []
    for line in text.splitlines():
        found = LINE.match(line)
        if not found:
            continue
        kind, stream, rest = found.groups()
        used = re.findall(r"%\d+", rest)
        made = MADE.match(line)
        if made:
            which = kind, stream, made[3]
            last[which] = last.get(which, -1) + 1
            state[made[2]] = [made[3], last[which]]
            if kind == "alloc":
                events.append(["alloc", *state[made[2]]])
        elif kind == "record":
            recorded[rest.split()[0]] = stream
        elif kind == "wait" and {stream, recorded[rest.split()[0]]} <= {"compute", "d2h", "h2d"}:
            events.append(["join", stream, recorded[rest.split()[0]]])
        elif kind == "d2h":
            events.append(["d2h", *state[used[0]]])
        elif kind == "h2d":
            events.append(["h2d", *state[used[1]]])
        elif kind == "free" and used[0] in state:
            events.append(["free", *state[used[0]]])
            if not rest.endswith("after d2h"):
                unmarked.append(used[0])
    return events, unmarked


def steady(job, offsim):
    return offsim("plan", "docs/examples/tiny-llama.yaml",
                  *sets(*BASE, f"use_precision_aware_optimizer={str(job['aware']).lower()}")).stdout


@pytest.mark.parametrize("job", [job for job in RECORDED if not job["first"]], ids=lambda job: f"aware={job['aware']}")
def test_order_is_that_of_megatron(offsim, job):
    events, unmarked = issued(steady(job, offsim))
    assert not unmarked
    assert events == [event for event in job["order"] if event[0] != "mark"]


@pytest.mark.parametrize("job", [job for job in RECORDED if job["first"]], ids=lambda job: f"aware={job['aware']}")
def test_first_step_moves_main_parameters_alone(offsim, job):
    text = offsim("plan", "--iteration", "warmup", "docs/examples/tiny-llama.yaml",
                  *sets(*BASE, f"use_precision_aware_optimizer={str(job['aware']).lower()}")).stdout
    copied = [re.findall(rf"^  {kind} +{kind} +(%\d+) -> (%\d+)", text, re.M) for kind in ("d2h", "h2d")]
    mains = re.findall(r"^  alloc +compute +(%\d+) main_param ", text, re.M)
    count = sum(event[0] == "d2h" for event in job["order"])
    assert [pair[0] for pair in copied[0]] == mains[:count]
    assert [pair[1] for pair in copied[1]] == mains[count:]
    assert [pair[1] for pair in copied[0]] == [pair[0] for pair in copied[1]]
