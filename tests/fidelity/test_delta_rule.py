"""The gated delta rule allocates at most what flash-linear-attention's function does beyond its operands, to the byte:
tests/peers/delta_rule_peaks.py ran that function."""

import re

import pytest

from conftest import sets

SCENARIO = "docs/examples/tiny-llama-hf.yaml"
SETTINGS = ("linear_num_value_heads=4", "linear_num_key_heads=2", "linear_key_head_dim=32", "linear_value_head_dim=16",
            "num_layers=1", "seq_length=1000", "micro_batch_size=2")
ALLOCATION = re.compile(r" (alloc|free) +compute +(%\d+)(?: (\w+) \S+ (\d+) bytes)?")


@pytest.fixture(scope="module")
def operations(offsim):
    """Allocations of the first micro-batch's delta rule, from the first tensor of forward and of backward on."""
    lines = offsim("plan", SCENARIO, *sets(*SETTINGS), check=0).stdout.splitlines()
    def first(pattern, after=0):
        return next(i for i in range(after, len(lines)) if re.search(pattern, lines[i]))
    forward = first(r"alloc .* query_rows ")
    output = first(r"kernel .* delta_output ", forward)
    backward = first(r"alloc .* delta_read ", output)
    last = first(r"kernel .* l2norm_backward ", first(r"kernel .* l2norm_backward ", backward) + 1)
    return {"forward": lines[forward:output], "backward": lines[backward:last]}


@pytest.mark.parametrize("direction, peak", [("forward", 3_779_072), ("backward", 3_670_144)])
def test_peak(operations, direction, peak):
    live, most = {}, 0
    for found in filter(None, map(ALLOCATION.search, operations[direction])):
        what, buffer, _, size = found.groups()
        if what == "alloc":
            live[buffer] = int(size)
        else:
            live.pop(buffer, None)
        most = max(most, sum(live.values()))
    assert most == peak
