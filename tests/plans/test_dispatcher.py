"""What attributes of the all-to-all dispatcher refer to stays until the layer's next forward, and into the next step."""

import re

import pytest

from conftest import sets

SCENARIO = ["docs/examples/one-layer.yaml", *sets(
    "num_layers=3", "global_batch_size=3", "num_experts=8", "moe_router_topk=2", "moe_ffn_hidden_size=512",
    "moe_token_dispatcher_type=alltoall", "moe_grouped_gemm=true", "offload_modules=core_attn", "offload.mode=fixed")]


@pytest.mark.parametrize("fused, kept", [("true", ["probs", "routing_map", "row_id_map"]), ("false", ["probs", "routing_map", "sorted_indices"])])
def test_attributes(offsim, fused, kept):
    text = offsim("plan", *SCENARIO, *sets(f"moe_permute_fusion={fused}"), check=0).stdout.splitlines()
    where, made, freed, phase = {}, {}, {}, None
    for line in text:
        if not line.startswith(" "):
            phase = line
        found = re.match(r"  alloc +compute +(%\d+) (\w+) .* @ layer (\d+) ", line)
        if found and found[2] in kept and phase.startswith("forward"):  # gradients have the same names
            made[found[1]], where[found[1]] = phase, (found[2], int(found[3]))
        found = re.match(r"  free +compute +(%\d+)", line)
        if found and found[1] in made:
            freed[found[1]] = phase
    for name in kept:
        for layer in range(3):
            blocks = [block for block, place in where.items() if place == (name, layer)]
            assert [made[block] for block in blocks] == [f"forward m{m} c0" for m in range(3)], (name, layer)
            assert [freed.get(block) for block in blocks] == ["forward m1 c0", "forward m2 c0", None], (name, layer)
    residents = [line for line in text if line.startswith("resident") or " retained" in line]
    for name in kept:
        attribute = {"row_id_map": "row_ids"}.get(name, name)
        assert sum(f" dispatcher.{attribute} " in line for line in residents) == 3
    assert offsim("check", *SCENARIO, *sets(f"moe_permute_fusion={fused}"), check=0)
