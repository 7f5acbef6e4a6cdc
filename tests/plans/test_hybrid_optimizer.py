"""The optimizer step of `offsim plan` with optimizer_cpu_offload in the order that Megatron-LM's HybridDeviceOptimizer issued on a
stub of torch (tests/data/hybrid_optimizer.json, recorded by tests/peers/hybrid_optimizer.py)."""

import json
import re

import pytest

from conftest import ROOT, sets

RECORDED = json.loads((ROOT / "tests/data/hybrid_optimizer.json").read_text())
BASE = ["num_layers=1", "use_distributed_optimizer=true", "use_precision_aware_optimizer=true", "optimizer_cpu_offload=true"]
LINE = re.compile(r"  (\w+) +(\w+) +(.*)")


def keys_of(job):
    return [*BASE, f"optimizer_offload_fraction={job['fraction']}",
            f"overlap_cpu_optimizer_d2h_h2d={str(job['overlap']).lower()}",
            f"main_grads_dtype={'bf16' if job['bf16_gradients'] else 'fp32'}"]


def shards(text):
    """Elements by parameter, and the parameter of each buffer of the optimizer."""
    of, last = {}, {}
    for buffer, name, count in re.findall(r"^  resident +\w+ +(%\d+) (main_param\.grad|main_param|exp_avg) fp32\[(\d+)\]",
                                          text, re.M):
        number = last[name] = last.get(name, -1) + 1
        of[buffer] = (name, number, int(count))
    elements = [count for name, _, count in of.values() if name == "exp_avg"]
    return elements, {buffer: (name, number) for buffer, (name, number, _) in of.items()}


def issued(text):
    """The events of the recorded form, from the plan's optimizer phase."""
    _, of = shards(text)
    events, recorded, gradients, brought = [], {}, [], {}
    for kind, stream, rest in LINE.findall(text[text.index("\noptimizer\n"):]):
        used = re.findall(r"%\d+", rest)
        if kind == "record":
            recorded[rest.split()[0]] = (stream, gradients)
            gradients = []
        elif kind == "wait":
            events.append(["join", stream, recorded[rest.split()[0]][0]])
        elif kind == "host_wait" and recorded[rest.split()[0]][1]:
            events.append(["host waits", recorded[rest.split()[0]][1]])
        elif kind == "d2h":
            events.append(["d2h", stream, of[used[-1]][1]])
            gradients.append(of[used[-1]][1])
        elif kind == "h2d":
            brought[used[1]] = of[used[0]][1]
            events.append(["h2d", stream, of[used[0]][1]])
        elif kind == "kernel" and rest.startswith("copy"):
            block = [b for b in used if b in of]
            number = of[block[0]][1] if block else brought.get(used[0])
            events.append(["cast", stream, number])
        elif kind == "kernel" and "optimizer_step" in rest:
            side = "host" if stream == "cpu" else "device"
            numbers = [of[b][1] for b in rest.split(" -> ")[1].split() if of.get(b, ("",))[0] == "main_param"]
            if side == "host" and events[-1][:2] == ["step", "host"]:  # another decay, in one call
                events[-1][2].extend(numbers)
            else:
                events.append(["step", side, numbers])
    # a gradient is cast just before it leaves
    for one, next_one in zip(events, events[1:]):
        if one[0] == "cast" and one[2] is None:
            one[2] = next_one[2]
    return events


@pytest.mark.parametrize("job", RECORDED, ids=lambda job: " ".join(keys_of(job)[len(BASE):]))
def test_order_is_that_of_megatron(offsim, job):
    text = offsim("plan", "docs/examples/tiny-llama.yaml", *sets(*keys_of(job))).stdout
    elements, _ = shards(text)
    assert elements == [count for group in job["groups"] for count in group]
    assert issued(text) == job["order"]
