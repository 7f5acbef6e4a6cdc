"""Where the host reads values of the GPU, by a copy, and where it only waits."""

import collections

import pytest

from conftest import sets

LAYERS = 2


@pytest.mark.parametrize("dispatcher, issued_by, reads", [
    (["alltoall"], "framework", LAYERS),
    (["flex", "deepep"], "framework", 0),
    (["alltoall"], "offsim", 0)], ids=["alltoall", "deepep", "offsim"])
def test_token_counts(offsim, dispatcher, issued_by, reads):
    """Megatron-LM copies token counts from the GPU; DeepEP's kernels write them to page-locked memory. offsim's own runs
    have no values to read."""
    names = ["moe_token_dispatcher_type", "moe_flex_dispatcher_backend"]
    plan = offsim("plan", *sets(*[f"{name}={word}" for name, word in zip(names, dispatcher)],
                                f"software.issued_by={issued_by}", f"num_layers={LAYERS}", "mtp_num_layers=0", "num_experts=8",
                                "moe_layer_freq=1", "num_virtual_stages_per_pipeline_rank=1",
                                "pipeline_model_parallel_size=1", "expert_model_parallel_size=4",
                                "global_batch_size=4", "clip_grad=0", "check_for_nan_in_loss_and_grad=false"),
                  "docs/examples/tiny-deepseek.yaml").stdout
    kinds = collections.Counter(line.split()[0] for line in plan.splitlines() if line.startswith("  "))
    assert kinds["host_read"] == reads
    assert kinds["host_wait"] == (0 if reads else LAYERS)
