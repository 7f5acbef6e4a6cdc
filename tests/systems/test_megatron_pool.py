"""Which tensors Megatron-LM's pool of page-locked buffers serves: those whose shape is the same in every step."""

import re

import pytest

from conftest import sets

EXPERTS = sets("num_layers=2", "num_experts=4", "moe_ffn_hidden_size=1024", "moe_router_topk=2", "moe_grouped_gemm=true",
               "moe_token_dispatcher_type=alltoall", "software.container=pytorch:26.04-py3")


@pytest.mark.parametrize("module, pooled, more", [
    ("qkv_linear", True, []),
    ("core_attn", True, []),
    ("mlp_norm", True, []),
    ("expert_fc1", False, []),
    ("moe_act", False, []),
    ("fused_group_mlp", False, ["use_transformer_engine_op_fuser=true"]),
])
def test_shapes_of_experts_vary(offsim, module, pooled, more):
    options = [*EXPERTS, *sets(f"offload_modules={module}", "mode=as_released", *more)]
    plan = offsim("plan", *options, "--iteration", "warmup", "docs/examples/one-layer.yaml", check=0).stdout
    keys = [bool(re.search(r" pinned_host key \d+ ", line)) for line in plan.splitlines() if "  host_alloc " in line]
    assert keys and set(keys) == {pooled}
