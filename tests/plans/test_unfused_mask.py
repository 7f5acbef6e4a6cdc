"""Transformer Engine's unfused attention makes a mask for each call and holds it until the context is there."""
import re

import pytest

from conftest import sets

LAYER = ["docs/examples/one-layer.yaml", *sets("attention_backend=unfused", "cpu_offloading_num_layers=0", "system=none")]
QUERIES = 4096


def attention(offsim, container):
    """Allocations and frees of forward's core attention, in order: (op, buffer, name, type)."""
    plan = offsim("plan", *LAYER, *sets(f"container=pytorch:{container}-py3"), check=0).stdout.splitlines()
    first = next(i for i, line in enumerate(plan) if line.endswith("self_attention.core_attention"))
    last = next(i for i, line in enumerate(plan) if " context_sbhd " in line) + 4
    found = [re.match(r" +(alloc|free) +\S+ +(%\d+)(?: (\S+) (\w+)\[)?", line) for line in plan[first:last]]
    return [m.groups() for m in found if m]


@pytest.mark.parametrize("container, wide", [("25.05", 3), ("26.04", 0)])
def test_mask_lives_until_the_context_is_there(offsim, container, wide):
    ops = attention(offsim, container)
    mask = next(buffer for op, buffer, name, _ in ops if name == "causal_mask")
    order = [name if op == "alloc" else "free" for op, buffer, name, _ in ops if op == "alloc" or buffer == mask]
    assert order.index("causal_mask") < order.index("scores") < order.index("context_sbhd") < order.index("free")
    made = ops[:ops.index(next(o for o in ops if o[2] == "causal_mask"))]
    types = [kind for op, _, _, kind in made if op == "alloc"]
    assert types.count("i32") == 3 and types.count("i64") == wide
    dropped = {buffer for op, buffer, _, _ in ops[:[o[2] for o in ops].index("scores")] if op == "free"}
    steps = {buffer for op, buffer, _, kind in made if op == "alloc" and kind in ("u8", "i32", "i64")}
    assert len(steps) == (8 if wide else 7) and dropped >= steps, "all but the mask are dropped before the scores"


def test_the_mask_has_a_byte_for_each_query_and_key(offsim):
    plan = offsim("plan", *LAYER, check=0).stdout
    assert re.search(rf"causal_mask u8\[{QUERIES},{QUERIES}\] {QUERIES * QUERIES} bytes transient @ layer 0 self_attention.core_attention", plan)


@pytest.mark.parametrize("keys", [["container=pytorch:24.01-py3"], ["transformer_impl=local"], ["attention_backend=auto"]])
def test_others_make_none(offsim, keys):
    assert "causal_mask" not in offsim("plan", *LAYER, *sets(*keys), check=0).stdout
