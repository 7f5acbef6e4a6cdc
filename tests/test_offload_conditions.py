"""What Megatron-LM refuses, or leaves undone with a warning, beside the rules in
tests/unit/test_settings_validate.c: ranges, choices and notes, as a user meets them."""

import json

import pytest

SMALL = "tests/data/small.yaml"
STATIC = ["num_experts=16", "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_router_topk=4",
          "moe_token_dispatcher_type=flex", "moe_flex_dispatcher_backend=hybridep", "moe_router_dtype=fp32",
          "moe_expert_rank_capacity_factor=3", "use_transformer_engine_op_fuser=true",
          "expert_model_parallel_size=4", "fp8_format=e4m3", "fp8_recipe=mxfp8", "machine.name=B200"]
STASH = STATIC + ["fine_grained_activation_offloading=false", "offload_modules=", "moe_paged_stash=true"]


LAYERS = ["fine_grained_activation_offloading=false", "offload_modules=", "pipeline_model_parallel_size=1",
          "cpu_offloading_num_layers=4"]


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


@pytest.mark.parametrize("setting, message", [
    ("offload_modules=mlp", 'offload_modules is "mlp"; it must be attn_norm, qkv_linear, core_attn'),
    ("min_offloaded_tensor_size=-1", "min_offloaded_tensor_size is -1"),
    ("activation_offload_fraction=-0.1", "activation_offload_fraction is -0.1; it must be from 0 to 1"),
    ("activation_offload_fraction=1.5", "activation_offload_fraction is 1.5; it must be from 0 to 1"),
    ("delta_offload_bytes_across_pp_ranks=-1", "delta_offload_bytes_across_pp_ranks is -1"),
    ("fine_grained_offloading_max_inflight_offloads=-1", "fine_grained_offloading_max_inflight_offloads is -1"),
    ("cpu_offloading_num_layers=-1", "cpu_offloading_num_layers is -1"),
    ("cuda_graph_impl=inductor", 'cuda_graph_impl is "inductor"; it must be none, local'),
    ("cuda_graph_modules=embedding", 'cuda_graph_modules is "embedding"; it must be attn, mlp'),
    ("recompute_modules=embedding", 'recompute_modules is "embedding"; it must be core_attn'),
    ("moe_paged_stash_page_size=0", "moe_paged_stash_page_size is 0; it must be from 1"),
])
def test_ranges_and_choices(offsim, setting, message):
    run = offsim("predict", SMALL, *sets(setting))
    assert run.status == 2 and f"--set: error: {message}" in run.stderr, run.stderr


@pytest.mark.parametrize("settings, note", [
    (["cuda_graph_impl=transformer_engine", "cuda_graph_modules=attn", "offload_modules=core_attn,attn_norm"],
     "offload_modules: attn_norm stays on the device, because a CUDA graph begins or ends there"),
    (["cuda_graph_impl=transformer_engine", "cuda_graph_modules=attn", "offload_modules=core_attn,mlp_norm"],
     "offload_modules: mlp_norm stays on the device, because a CUDA graph begins or ends there"),
    (["cuda_graph_impl=transformer_engine", "offload_modules=core_attn"],
     "cuda_graph_impl: that graphs allocate from a pool of their own is not modelled"),
    (["cuda_graph_impl=full_iteration", "check_for_nan_in_loss_and_grad=false",
      "fine_grained_offloading_max_inflight_offloads=1"],
     "cuda_graph_impl: buffers that its graphs keep, and their own pool, are not modelled"),
    (["offload_modules=core_attn,gdp_qkv"], "gdp_qkv: gated delta product mixers are not modelled"),
    ([], "needs NVTE_CPU_OFFLOAD_V1=1 in the environment"),
    (LAYERS + ["cpu_offloading_weights=true"], "cpu_offloading_weights has no effect"),
    (LAYERS + ["cpu_offloading_double_buffering=true"],
     "cpu_offloading_double_buffering has no effect: Transformer Engine's second engine has no double buffer"),
    (LAYERS + ["cpu_offloading_num_layers=7"], "with all layers but one offloaded, te_v2 waits for every copy"),
    (STASH + ["fp8_recipe=blockwise"], "moe_paged_stash: nothing is stashed"),
    (STASH + ["fine_grained_activation_offloading=true", "offload_modules=core_attn"],
     "moe_paged_stash: the stash beside another offload system is not modelled"),
])
def test_notes(offsim, settings, note):
    assert note in offsim("predict", SMALL, *sets(*settings), check=0).stderr


def test_double_buffer_needs_layers_alike(offsim):
    dense_and_experts = ["num_experts=8", "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_layer_freq=2",
                         "moe_router_topk=2", "moe_token_dispatcher_type=alltoall"]
    run = offsim("predict", SMALL, *sets(*LAYERS, *dense_and_experts, "nvte_cpu_offload_v1=true",
                                         "cpu_offloading_double_buffering=true"))
    assert run.status == 2 and "cpu_offloading_double_buffering needs layers that save the same shapes" in run.stderr


def test_environment_that_is_given_must_fit(offsim):
    run = offsim("predict", SMALL, *sets("environment_given=true"))
    assert run.status == 2 and "needs NVTE_CPU_OFFLOAD_V1=1 in the environment" in run.stderr


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
