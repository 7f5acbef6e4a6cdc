"""Token dispatchers of one exchange (DeepEP, HybridEP) compute what alltoall does; dropped tokens are
counted."""

import json

import pytest

from conftest import sets

LLAMA = "docs/examples/tiny-llama.yaml"
EXPERTS = ["num_experts=4", "moe_ffn_hidden_size=32", "moe_router_topk=2", "moe_grouped_gemm=true",
           "moe_router_dtype=fp32", "global_batch_size=4", "expert_model_parallel_size=2", "world_size=2"]
ALL_TO_ALL = ["moe_token_dispatcher_type=alltoall"]
FLEX = {name: ["moe_token_dispatcher_type=flex", f"moe_flex_dispatcher_backend={name}"] for name in ("deepep", "hybridep")}
BALANCED, ROOMY = "moe_router_force_load_balancing=true", "moe_imbalance=4"
WAYS = {
    "plain": [],
    "fused": ["moe_permute_fusion=true", "moe_router_fusion=true"],
    "recomputed": ["recompute_granularity=selective", "recompute_modules=[moe]"],
}


def run(offsim, *settings):
    done = offsim("run", "--on", "ref", "--steps", 2, "--json", *sets(*EXPERTS, *settings), LLAMA, check=0)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected(offsim):
    return {load: run(offsim, *ALL_TO_ALL, load)["steps"] for load in (BALANCED, ROOMY)}


@pytest.mark.parametrize("load", [BALANCED, ROOMY])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", FLEX)
def test_same_bits_as_all_to_all(offsim, expected, backend, way, load):
    got = run(offsim, *FLEX[backend], *WAYS[way], load)
    assert got["steps"] == expected[load] and got["left_out_choices"] == 0
    assert got["device_peak_bytes"] == got["plan_peak_bytes"]


@pytest.mark.parametrize("dispatcher", [ALL_TO_ALL, ["moe_token_dispatcher_type=allgather"], *FLEX.values()],
                         ids=["alltoall", "allgather", *FLEX])
def test_left_out_choices_are_counted_once(offsim, dispatcher):
    plain, again = run(offsim, *dispatcher), run(offsim, *dispatcher, *WAYS["recomputed"])
    choices = 2 * 4 * 4 * 32 * 2  # steps, layers, samples, tokens, experts of a token
    assert 0 < plain["left_out_choices"] < choices
    assert again["left_out_choices"] == plain["left_out_choices"]


@pytest.mark.parametrize("dispatcher", [ALL_TO_ALL, ["moe_token_dispatcher_type=allgather"], FLEX["deepep"]],
                         ids=["alltoall", "allgather", "deepep"])
def test_a_checkpoint_in_a_checkpoint_of_the_same_input(offsim, dispatcher):
    shared = [*dispatcher, "moe_shared_expert_intermediate_size=32"]
    nested = run(offsim, *shared, "recompute_granularity=selective", "recompute_modules=[moe,shared_experts]")
    assert nested["steps"] == run(offsim, *shared)["steps"]
    assert nested["device_peak_bytes"] == nested["plan_peak_bytes"]


def test_interleavings_agree(offsim):
    done = offsim("run", "--on", "ref", "--steps", 2, "--interleavings", 5, "--json",
                  *sets(*EXPERTS, *FLEX["hybridep"]), LLAMA, check=0)
    assert json.loads(done.stdout)["agree"]


STASH = "docs/examples/paged-stash.yaml"
SMALL = ["num_layers=4", "hidden_size=64", "ffn_hidden_size=128", "num_attention_heads=4", "num_experts=4",
         "moe_ffn_hidden_size=32", "moe_router_topk=2", "seq_length=64", "vocab_size=256", "world_size=4",
         "expert_model_parallel_size=2", "use_distributed_optimizer=false", BALANCED]


def stashed(offsim, *settings):
    done = offsim("run", "--on", "ref", "--steps", 3, "--json", *sets(*SMALL, *settings), STASH, check=0)
    return json.loads(done.stdout)


def test_the_paged_stash_changes_no_bit(offsim):
    """Nor do static buffers: their rows without a token are never seen."""
    packed, padded = stashed(offsim), stashed(offsim, "moe_paged_stash=false")
    exact = stashed(offsim, "moe_paged_stash=false", "moe_expert_rank_capacity_factor=0")
    assert packed["steps"] == padded["steps"] == exact["steps"]
    for got in (packed, padded, exact):
        assert got["device_peak_bytes"] == got["plan_peak_bytes"]
    assert packed["device_peak_bytes"] != padded["device_peak_bytes"]


def test_interleavings_of_the_paged_stash_agree(offsim):
    done = offsim("run", "--on", "ref", "--steps", 2, "--interleavings", 3, "--json", *sets(*SMALL), STASH, check=0)
    assert json.loads(done.stdout)["agree"]
