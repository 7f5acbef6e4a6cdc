"""Transformer Engine's ring of context parallelism makes query, key and value contiguous, and saves keys and values as one
tensor: the one that the last neighbour's arrive in."""

import re

import pytest

from conftest import sets

TOKENS, HEADS, GROUPS, WIDTH = 4096, 8, 2, 128
SETTINGS = ["num_layers=1", "group_query_attention=true", f"num_query_groups={GROUPS}", "system=none"]


def core(offsim, ranks, *settings):
    """(name, bytes, class) of the allocations of core attention in forward, in order."""
    text = offsim("plan", *sets(*SETTINGS, f"context_parallel_size={ranks}", f"world_size={ranks}", *settings),
                  "docs/examples/one-layer.yaml", check=0).stdout
    assert "0 errors" in offsim("check", "--plan", "-", stdin=text, check=0).stdout
    forward = text[text.index("\nforward m0"):text.index("\nbackward m0")]
    found = re.findall(r"alloc +compute +%\d+ (\w+) .* (\d+) bytes (\w+) @ layer 0 self_attention", forward)
    return [(name, int(size), kind) for name, size, kind in found]


def saved(rows):
    return {name: size for name, size, kind in rows if kind == "saved"}


@pytest.mark.parametrize("backend", ["fused", "flash"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_one_tensor_is_saved(offsim, ranks, backend):
    rows = core(offsim, ranks, f"attention_backend={backend}")
    names, sizes = [name for name, _, _ in rows], {name: size for name, size, _ in rows}
    tokens = TOKENS // ranks
    key_value, query = 2 * tokens * GROUPS * WIDTH * 2, tokens * HEADS * WIDTH * 2
    kept = saved(rows)
    assert sorted(size for name, size in kept.items() if "query" in name or "attention_output" == name) == [query, query]
    assert kept["key_value"] == key_value and not any(name.startswith(("key_r", "key_c", "key_b", "value")) for name in kept)
    # In the order of the ring: what the last neighbour sends comes after what the others do.
    assert names.index("exchanged_kv") + 1 == names.index("key_value")
    assert sizes["exchanged_kv"] == (ranks - 1) * key_value and names.count("output_of_step") == ranks


@pytest.mark.parametrize("how", ["all_gather", "a2a"])
def test_other_exchanges_save_keys_and_values_apart(offsim, how):
    kept = saved(core(offsim, 2, "attention_backend=fused", f"cp_comm_type={how}"))
    assert "key_value" not in kept and sum(name.startswith(("key", "value")) for name in kept) == 2
