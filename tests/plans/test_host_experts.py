"""What `offsim plan` issues for a layer's experts with moe_use_offloading_experts, in the order in which Megatron-LM's autograd
function issued it on a stub of torch (tests/data/host_experts.json, recorded by tests/peers/host_experts.py)."""

import json
import re

import pytest

from conftest import ROOT, sets

RECORDED = json.loads((ROOT / "tests/data/host_experts.json").read_text())
STREAMS = {"weights": 0, "weights_odd": 1}
RESIDENT = re.compile(r"  resident +\w+ +(%\d+) (mlp\.experts\.linear_fc(\d)\.weight|experts(\d)_gpu_buffers\.0) bf16\[(\d+)\]")
COPY = re.compile(r"  h2d +(weights\w*) +(%\d+) -> (%\d+)\{bf16\+(\d+):(\d+)\}")
PRODUCT = re.compile(r"  kernel +compute +grouped_gemm .* experts=(\d+).*? of=\d+( layout=1)? \d+ bytes %\d+ (%\d+)\{bf16\+(\d+):")
GRADIENT = re.compile(r"  kernel +compute +grouped_gemm bf16 m=(\d+) .* layout=2 ")
ACTIVATION = re.compile(r"  kernel +compute +weighted_activation_(forward|backward) ")
EVENT = re.compile(r"  (record|wait) +(\w+) +(e\d+)")
HIDDEN = 64  # of docs/examples/tiny-llama.yaml, the rows of a second weight


def issued(text, job):
    """The first micro-batch's, in the terms of the peer."""
    weight, buffer, numbers, records, events = {}, {}, {1: 0, 2: 0}, {}, []
    copies, products = [0, 0], 0
    for line in text.splitlines():
        if found := RESIDENT.match(line):
            linear = int(found[3] or found[4])
            if found[3]:
                weight[found[1]] = linear, numbers[linear]
                numbers[linear] += 1
            else:
                buffer[found[1]] = linear, int(found[5]) // job["stages"]
        elif line.startswith("forward m1"):
            break
        elif found := COPY.match(line):
            linear, size = buffer[found[3]]
            assert weight[found[2]][0] == linear
            copies[STREAMS[found[1]]] += 1
            events.append(["copy", *weight[found[2]], int(found[4]) // size, STREAMS[found[1]]])
        elif found := PRODUCT.match(line):
            linear, size = buffer[found[3]]
            assert int(found[1]) == job["experts"] // job["chunks"]
            products += 1
            events.append(["product", linear, bool(found[2]), int(found[4]) // size])
        elif found := GRADIENT.match(line):
            products += 1
            events.append(["gradient", 2 if int(found[1]) == HIDDEN else 1])
        elif found := ACTIVATION.match(line):
            events.append(["activation", found[1]])
        elif found := EVENT.match(line):
            kind, stream, event = found.groups()
            if kind == "record":
                records[event] = stream, copies[STREAMS[stream]] if stream in STREAMS else products
            elif records[event][0] in STREAMS and stream == "compute":
                events.append(["arrived", STREAMS[records[event][0]], records[event][1]])
            elif stream in STREAMS and records[event][0] == "compute":
                events.append(["read", STREAMS[stream], records[event][1]])
    return events


@pytest.mark.parametrize("job", RECORDED, ids=lambda job: "-".join(str(job[key]) for key in
                                                                   ("experts", "chunks", "stages", "again")))
def test_order_is_that_of_megatron(offsim, job):
    again = ["recompute_granularity=selective", "recompute_modules=moe_act"] if job["again"] else []
    text = offsim("plan", "docs/examples/tiny-llama.yaml",
                  *sets("num_layers=1", f"num_experts={job['experts']}", "moe_ffn_hidden_size=48", "moe_router_topk=2",
                        "moe_grouped_gemm=true", "moe_token_dispatcher_type=alltoall", "moe_use_offloading_experts=true",
                        f"moe_offloading_num_chunks={job['chunks']}", f"moe_offloading_num_stages={job['stages']}", *again)).stdout
    assert issued(text, job) == job["order"]


@pytest.mark.parametrize("settings", [
    ["num_experts=4", "moe_ffn_hidden_size=32", "moe_router_topk=2", "moe_grouped_gemm=true", "moe_token_dispatcher_type=alltoall",
     "moe_use_offloading_experts=true", "moe_offloading_num_chunks=2"],
    ["use_distributed_optimizer=true", "use_precision_aware_optimizer=true", "optimizer_cpu_offload=true"],
], ids=["experts", "optimizer"])
def test_work_of_the_host_reads_back(offsim, settings):
    text = offsim("plan", "docs/examples/tiny-llama.yaml", *sets("num_layers=1", *settings)).stdout
    assert "  kernel     cpu " in text
    assert offsim("plan", "--plan", "-", stdin=text).stdout == text
