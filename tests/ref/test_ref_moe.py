"""Experts in the reference execution: what must be the same bits, and what the same sums in another order."""

import json

import pytest

from conftest import one_error, sets

SCENARIO = "docs/examples/tiny-deepseek.yaml"
# One data-parallel rank for each expert-parallel one, in fp32, without anything that differs by rank.
PLAIN = ["bf16=false", "pipeline_model_parallel_size=1", "num_virtual_stages_per_pipeline_rank=1",
         "world_size=2", "expert_model_parallel_size=1", "num_layers=2", "mtp_num_layers=0",
         "fine_grained_activation_offloading=false", "offload_modules="]


def step(offsim, *settings):
    done = offsim("run", "--on", "ref", "--json", "--steps", 1, *sets(*PLAIN, *settings), SCENARIO, check=0)
    return json.loads(done.stdout)["steps"][0]


def gradients(offsim, path, *settings):
    offsim("run", "--on", "ref", "--steps", 1, "--dump", path, *sets(*PLAIN, *settings), SCENARIO, check=0)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: [float.fromhex(x) for x in row["values"]] for row in rows if row["kind"] == "gradient"}


def distance(a, b):
    """max |a - b| over max |b|, of the tensor where it is largest."""
    assert a.keys() == b.keys()
    return max(max(abs(x - y) for x, y in zip(a[name], b[name])) / max(map(abs, b[name])) for name in b)


@pytest.mark.parametrize("settings", [
    ["moe_permute_fusion=true"],
    ["moe_router_fusion=true"],
    ["moe_token_dispatcher_type=allgather"],
    ["moe_token_dispatcher_type=allgather", "moe_permute_fusion=true"],
    ["bias_activation_fusion=false"],
], ids=" ".join)
def test_other_kernels_same_bits(offsim, settings):
    assert step(offsim, *settings) == step(offsim)


# A checkpoint keeps the gradient of a part of its output: the sum with another gradient is a
# separate tensor.
def test_a_checkpointed_prediction_layer_same_bits(offsim):
    predicting = ["mtp_num_layers=1"]
    full = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
    assert step(offsim, *predicting, *full) == step(offsim, *predicting)


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
@pytest.mark.parametrize("fused", ["true", "false"])
def test_weighted_outputs_sum_to_what_weighted_activations_do(offsim, tmp_path, dispatcher, fused):
    """Before 9 April 2025 the router's probabilities multiplied the experts' outputs, which are linear in the activations."""
    settings = [f"moe_token_dispatcher_type={dispatcher}", f"moe_permute_fusion={fused}", "moe_router_dtype="]
    found = distance(gradients(offsim, tmp_path / "before", *settings, "megatron_day=2025-04-08"),
                     gradients(offsim, tmp_path / "since", *settings, "megatron_day=2025-04-09"))
    assert 0 < found < 1e-5


BALANCED, ROOM = ["moe_router_force_load_balancing=true"], ["moe_imbalance=4"]


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
@pytest.mark.parametrize("one, two", [(BALANCED, BALANCED), ([], ROOM)], ids=["balanced", "room"])
def test_expert_parallel_ranks_compute_what_one_does(offsim, tmp_path, dispatcher, one, two):
    two = [*two, "expert_model_parallel_size=2", f"moe_token_dispatcher_type={dispatcher}"]
    found = distance(gradients(offsim, tmp_path / "two", *two), gradients(offsim, tmp_path / "one", *one))
    assert found < 1e-6


def test_no_room_leaves_choices_out(offsim):
    assert step(offsim, "expert_model_parallel_size=2")["loss"] != step(offsim)["loss"]


@pytest.mark.parametrize("settings", [["moe_expert_capacity_factor=1"],
                                      ["moe_expert_capacity_factor=1", "moe_pad_expert_input_to_capacity=true"],
                                      ["moe_grouped_gemm=false"], ["moe_grouped_gemm=false", "moe_imbalance=2"]], ids=" ".join)
def test_a_balanced_load_needs_no_more(offsim, settings):
    assert step(offsim, *BALANCED, *settings) == step(offsim, *BALANCED)


@pytest.mark.parametrize("settings, says", [
    (["moe_token_dispatcher_type=flex", "moe_flex_dispatcher_backend=hybridep", "moe_grouped_gemm=false"],
     "HybridEP without moe_grouped_gemm"),
    (["moe_imbalance=1.01", "expert_model_parallel_size=2"], "65 rows for 4 experts from 2 ranks"),
])
def test_refusals(offsim, settings, says):
    done = offsim("run", "--on", "ref", *sets(*PLAIN, *settings), SCENARIO)
    assert says in one_error(done, 2)
