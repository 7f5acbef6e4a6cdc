"""What attributes of the all-to-all dispatcher refer to stays until the layer's next forward, and into the next step."""

import re

import pytest

from conftest import sets

SCENARIO = ["docs/examples/one-layer.yaml", *sets(
    "num_layers=3", "global_batch_size=3", "num_experts=8", "moe_router_topk=2", "moe_ffn_hidden_size=512",
    "moe_token_dispatcher_type=alltoall", "moe_grouped_gemm=true", "offload_modules=core_attn", "offload.mode=fixed")]


ROWS, HIDDEN, FFN = 4096 * 2, 1024, 512


def kept_for_backward(offsim, *settings):
    """Bytes of the experts' wide tensors that a layer keeps for backward."""
    text = offsim("plan", *SCENARIO, *sets("num_layers=1", "system=none", *settings), check=0).stdout
    forward = text[text.index("\nforward m0"):text.index("\nbackward m0")]
    saved = re.findall(r"alloc .* (\d+) bytes saved @ layer 0 mlp[.]", forward)
    return sum(size for size in map(int, saved) if size >= ROWS * FFN * 2)


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
@pytest.mark.parametrize("activation, since, before", [
    # Tokens, fc1's output and the activated rows; gelu's result is another tensor than its product with the probabilities.
    (["swiglu=true"], HIDDEN + 3 * FFN, HIDDEN + 3 * FFN + HIDDEN),
    (["swiglu=false"], HIDDEN + 3 * FFN, HIDDEN + 2 * FFN + HIDDEN),
], ids=["swiglu", "gelu"])
def test_outputs_were_weighted_before_activations(offsim, dispatcher, activation, since, before):
    settings = [*activation, f"moe_token_dispatcher_type={dispatcher}", "container=pytorch:25.03-py3"]
    assert kept_for_backward(offsim, *settings, "megatron_day=2025-04-09") == ROWS * since * 2
    assert kept_for_backward(offsim, *settings, "megatron_day=2025-04-08") == ROWS * before * 2


def test_compiled_experts_keep_no_activation(offsim):
    """GroupedMLP, the experts without Transformer Engine 1.9: torch.compile computes gelu again in backward."""
    settings = ["swiglu=false", "container=pytorch:24.01-py3", "megatron_day=2025-04-29"]
    assert kept_for_backward(offsim, *settings) == ROWS * (HIDDEN + 2 * FFN) * 2


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
