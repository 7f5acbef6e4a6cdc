"""What `offsim plan` issues with chunked_optimizer_state_offload, in the order in which Megatron-LM's
ChunkedOptimizerStateOffloader issued it on a stub of torch (tests/data/chunked_state_offload.json, recorded by
tests/peers/chunked_state_offload.py)."""

import json
import re

import pytest

from conftest import ROOT, sets

RECORDED = json.loads((ROOT / "tests/data/chunked_state_offload.json").read_text())
STATES = "exp_avg_sq|exp_avg|master_param|main_param"
MADE = re.compile(rf"  (\w+) +(\w+) +(%\d+) (optimizer_state_window|{STATES}) \w+\[(\d+)\] \d+ bytes (\w+)")
LINE = re.compile(r"  (\w+) +(\w+) +(.*)")
STREAMS = {"compute", "d2h", "h2d"}


class Numbers:
    """Parameters by the order in which each of their states appears: that of those that leave."""

    def __init__(self):
        self.of = {}

    def __call__(self, name, parameter):
        known = self.of.setdefault(name, {})
        return [name, known.setdefault(parameter, len(known))]


def recorded(job):
    """The order with events numbered as they are waited for."""
    number, events, made = Numbers(), [], []
    for kind, *rest in job["order"]:
        if kind == "record":
            made.append(rest[0])
        elif kind == "wait":
            events.append(["wait", rest[0], made[rest[1]]])
        elif kind in ("step", "sync", "window"):
            events.append([kind, *rest])
        else:
            events.append([kind, *number(*rest)])
    return events


def issued(text):
    """The same of a plan: what moves are the states with a place on the host, and the windows."""
    number, events, made, home, steps = Numbers(), [], {}, {}, 0
    moved = set(re.findall(r"-> (%\d+)$", "\n".join(re.findall(r"  d2h .*", text)), re.M))
    for line in text.splitlines():
        found = LINE.match(line)
        if not found:
            continue
        kind, stream, rest = found.groups()
        used = re.findall(r"%\d+", rest)
        state = MADE.match(line)
        if steps and "optimizer_step" not in line:
            events.append(["step", steps])
            steps = 0
        if state and state[4] == "optimizer_state_window":
            events.append(["window", int(state[5])])
        elif state:
            home[state[3]] = state[4]
            if kind == "host_alloc" and state[3] in moved:
                events.append(["host_alloc", *number(state[4], state[3])])
            if kind == "alloc":
                events.append(["alloc", state[4], state[3]])
        elif kind == "record":
            made[rest.split()[0]] = stream
        elif kind == "wait" and {stream, made[rest.split()[0]]} <= STREAMS:
            events.append(["wait", stream, made[rest.split()[0]]])
        elif kind == "host_wait" and made[rest.split()[0]] == "d2h":
            events.append(["sync", "d2h"])
        elif kind in ("d2h", "h2d"):
            twin = used[kind == "d2h"]
            events.append([kind, *number(home[twin], twin)])
        elif "optimizer_step" in line:
            steps += int(re.search(r"tensors=(\d+)", line)[1])
    return events


def plan(offsim, job):
    iteration = "warmup" if job["first"] else "steady"
    return offsim("plan", "--iteration", iteration, "docs/examples/tiny-llama.yaml",
                  *sets(f"num_layers={job['layers']}", "use_distributed_optimizer=true", "chunked_optimizer_state_offload=true",
                        f"optimizer_state_offload_chunk_size_mb={job['chunk_bytes'] >> 20}",
                        f"optimizer_state_offload_fraction={job['fraction']}",
                        f"use_precision_aware_optimizer={str(job['aware']).lower()}",
                        f"resumes={str(job.get('loaded', False)).lower()}")).stdout


def without_allocations(events):
    return [event for event in events if event[0] != "alloc"]


@pytest.mark.parametrize("job", RECORDED, ids=lambda job: "-".join(str(job.get(key)) for key in
                                                                   ("layers", "chunk_bytes", "fraction", "aware", "first", "loaded")))
def test_order_is_that_of_megatron(offsim, job):
    text = plan(offsim, job)
    own, upstream = issued(text), recorded(job)
    assert without_allocations(own) == without_allocations(upstream)
    if not job["first"]:
        allocated = [event[1] for event in own if event[0] == "alloc"]
        assert allocated == [event[1] for event in upstream if event[0] == "alloc"]
