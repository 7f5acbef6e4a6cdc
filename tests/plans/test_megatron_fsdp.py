"""Megatron-FSDP's buckets of whole gradients, where gradients are sharded."""

import re

import pytest

from conftest import sets

LAYERS, MICROBATCHES = 4, 2
DENSE = ["system=none", "use_megatron_fsdp=true", f"num_layers={LAYERS}", "world_size=2", "micro_batch_size=1",
         f"global_batch_size={2 * MICROBATCHES}", "tensor_model_parallel_size=1", "pipeline_model_parallel_size=1",
         "fine_grained_activation_offloading=false", "use_distributed_optimizer=true"]


def plan_of(offsim, *settings):
    return offsim("plan", "tests/data/small.yaml", *sets(*DENSE, *settings)).stdout.splitlines()


def most_alive(plan):
    """Buckets at a time, and their number."""
    buckets, alive, most = set(), set(), 0
    for line in plan:
        if made := re.match(r"  alloc +compute +(%\d+) fsdp\.bucket ", line):
            buckets.add(made[1])
            alive.add(made[1])
        if freed := re.match(r"  free +compute +(%\d+)", line):
            alive.discard(freed[1])
        most = max(most, len(alive))
    assert not alive
    return most, len(buckets)


@pytest.mark.parametrize("strategy", ["optim_grads", "optim_grads_params"])
@pytest.mark.parametrize("fuses", ["true", "false"])
def test_every_micro_batch_reduces_its_buckets(strategy, fuses, offsim):
    """A bucket of each layer, and one for what is outside of them; the step reduces nothing more."""
    settings = [f"data_parallel_sharding_strategy={strategy}", f"gradient_accumulation_fusion={fuses}"]
    plan = plan_of(offsim, *settings)
    count = (LAYERS + 1) * MICROBATCHES
    assert most_alive(plan) == (LAYERS + 1, count)
    assert [line.split()[1] for line in plan if " reduce_scatter " in line] == ["comm"] * count
    assert sum(" kernel     comm     add bf16" in line for line in plan) == count
    offsim("check", "tests/data/small.yaml", *sets(*DENSE, *settings))


def test_large_buckets_do_not_wait_for_the_end(offsim):
    """Of more than 10^9 elements that wait the oldest are freed: two layers', beside the current one and what is outside."""
    plan = plan_of(offsim, "data_parallel_sharding_strategy=optim_grads", "hidden_size=8192", "ffn_hidden_size=32768",
                   "num_attention_heads=64")
    most, count = most_alive(plan)
    assert most == 4 < LAYERS + 1 and count == (LAYERS + 1) * MICROBATCHES


def test_experts_that_one_rank_has_alone(offsim):
    """Their gradients are summed where they stay, and layers have a bucket of their other parameters."""
    settings = ["data_parallel_sharding_strategy=optim_grads", "num_experts=4", "moe_router_topk=2", "moe_grouped_gemm=true",
                "moe_token_dispatcher_type=alltoall", "expert_model_parallel_size=2"]
    assert most_alive(plan_of(offsim, *settings))[1] == (LAYERS + 1) * MICROBATCHES
    offsim("check", "tests/data/small.yaml", *sets(*DENSE, *settings))
    offsim("check", "tests/data/small.yaml", *sets(*DENSE, *settings, "world_size=4", "global_batch_size=8"))


@pytest.mark.parametrize("settings", [["data_parallel_sharding_strategy=optim"], ["data_parallel_sharding_strategy=no_shard"],
                                      ["data_parallel_sharding_strategy=optim_grads", "delay_wgrad_compute=true"]])
def test_no_buckets(settings, offsim):
    assert most_alive(plan_of(offsim, *settings)) == (0, 0)
