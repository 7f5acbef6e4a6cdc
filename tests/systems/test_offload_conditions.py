"""The paged stash, and what is refused only when a plan is made; the other refusals are rows of
docs/reference/refusals.md."""

import json

import pytest

from conftest import one_error, sets

SMALL = "tests/data/small.yaml"
STATIC = ["num_experts=16", "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_router_topk=4",
          "moe_token_dispatcher_type=flex", "moe_flex_dispatcher_backend=hybridep", "moe_router_dtype=fp32",
          "moe_expert_rank_capacity_factor=3", "use_transformer_engine_op_fuser=true",
          "expert_model_parallel_size=4", "fp8_format=e4m3", "fp8_recipe=mxfp8", "machine.name=B200"]
STASH = STATIC + ["fine_grained_activation_offloading=false", "offload_modules=", "moe_paged_stash=true"]
LAYERS = ["fine_grained_activation_offloading=false", "offload_modules=", "pipeline_model_parallel_size=1",
          "cpu_offloading_num_layers=4"]


def test_double_buffer_needs_layers_alike(offsim):
    dense_and_experts = ["num_experts=8", "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_layer_freq=2",
                         "moe_router_topk=2", "moe_token_dispatcher_type=alltoall"]
    run = offsim("predict", SMALL, *sets(*LAYERS, *dense_and_experts, "nvte_cpu_offload_v1=true",
                                         "cpu_offloading_double_buffering=true"))
    assert run.status == 2 and "cpu_offloading_double_buffering needs layers that save the same shapes" in run.stderr


def test_double_buffer_may_not_be_overwritten(offsim):
    """Layer 1 comes back into the set of layer 3 before that one's backward, which as released is a race."""
    keys = sets("nvte_cpu_offload_v1=true", "offload.system=te_v1", "cpu_offloading_double_buffering=true",
                "num_layers=6", "mode=fixed")
    run = offsim("predict", "docs/examples/te-layers.yaml", *keys)
    assert run.status == 2 and "comes back into the buffers that layer 3 still needs" in run.stderr
    released = offsim("check", "docs/examples/te-layers.yaml", *keys, "--set", "mode=as_released")
    assert released.status == 1 and "read_before_write" in released.stdout
    offsim("check", "docs/examples/te-layers.yaml", *keys, "--set", "cpu_offloading_num_layers=5", check=0)


def test_double_buffer_of_few_layers(offsim):
    """Layer 0 comes back three layers before layer 2, which shares its set, needs that set: refused, too."""
    keys = sets("nvte_cpu_offload_v1=true", "offload.system=te_v1", "cpu_offloading_double_buffering=true",
                "num_layers=16", "cpu_offloading_num_layers=3", "mode=fixed")
    run = offsim("predict", "docs/examples/te-layers.yaml", *keys)
    assert run.status == 2 and "layer 0 comes back into the buffers that layer 2 still needs" in run.stderr
    offsim("check", "docs/examples/te-layers.yaml", *keys, "--set", "cpu_offloading_num_layers=2", check=0)


# ---- the paged stash ----

def stash(offsim, *settings):
    found = json.loads(offsim("predict", SMALL, *sets(*STASH, *settings), "--json", check=0).stdout)
    return found, found["result"]["ranks"], found["baseline"]["ranks"]


def test_stash_saves_the_padding(offsim):
    """Nothing goes to the host; what it saves grows with the capacity, and the arena counts as static."""
    found, ranks, without = stash(offsim)
    assert found["scenario"]["offload"]["system"] == "paged_stash"
    for rank, base in zip(ranks, without):
        assert rank["d2h_bytes"] == rank["h2d_bytes"] == rank["host_pinned_peak_bytes"] == 0
        assert rank["static_bytes"] > base["static_bytes"]
        assert rank["simulated_saving_bytes"] == pytest.approx(rank["theoretical_saving_bytes"], rel=0.1)
    tight = stash(offsim, "moe_expert_rank_capacity_factor=1.5")[1]
    assert ranks[0]["simulated_saving_bytes"] > max(0, tight[0]["simulated_saving_bytes"])


def test_host_arena_is_pinned_memory(offsim):
    ranks = stash(offsim, "moe_paged_stash_buffer_size_factor_cpu=0.5")[1]
    assert ranks[0]["host_pinned_peak_bytes"] > 0 == ranks[0]["d2h_bytes"]


def test_stash_that_overflows(offsim):
    run = offsim("predict", SMALL, *sets(*STASH, "moe_imbalance=2"))
    assert run.status == 2 and "the paged stash overflows" in run.stderr
    assert "raise moe_paged_stash_buffer_size_factor_cuda" in run.stderr
    stash(offsim, "moe_imbalance=2", "moe_paged_stash_buffer_size_factor_cuda=-1.0")


def test_plan_with_the_stash_reads_back(offsim):
    plan = offsim("plan", SMALL, *sets(*STASH), check=0).stdout
    assert offsim("plan", "--plan", "-", stdin=plan, check=0).stdout == plan
    assert "kernel     pack" in plan


FP8 = ["fp8_format=hybrid", "machine.name=H100-SXM"]


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "blockwise"])
@pytest.mark.parametrize("modules, stops", [("core_attn", False), ("core_attn,attn_proj", True), ("qkv_linear", True)])
def test_a_quantised_weight_stops_the_released_code(offsim, recipe, modules, stops):
    """In the first forward, if the weight is in a group and as large as what leaves; Parameters are not asked."""
    keys = sets(*FP8, f"fp8_recipe={recipe}", f"offload_modules={modules}")
    if stops:
        message = one_error(offsim("predict", SMALL, *keys), 2)
        assert "access the data pointer on an invalid python storage" in message
    for more in (["mode=fixed"], ["fp8_param_gather=true"], ["min_offloaded_tensor_size=10000000"]):
        offsim("predict", SMALL, *keys, *sets(*more), "--brief", check=0)
    assert stops or offsim("predict", SMALL, *keys, "--brief").status == 0


def test_the_default_is_the_released_code(offsim):
    found = json.loads(offsim("predict", SMALL, "--json", "--brief", check=0).stdout)
    assert found["scenario"]["offload"]["mode"] == "as_released" and not found["safety"]["safe"]
    assert found["safety"]["errors_of_first_step"] > 0 and found["safety"]["first"]["kind"] == "read_before_write"
    fixed = json.loads(offsim("predict", SMALL, "--json", "--brief", *sets("mode=fixed"), check=0).stdout)
    assert fixed["safety"] == {"safe": True, "errors_of_first_step": 0, "errors_of_later_steps": 0, "first": None}
