"""What the host does between launches: Megatron-FSDP's hooks, norms of single gradients."""

import pytest

from conftest import sets

LAYERS = 4
MICROBATCHES = 2
PARAMETERS = 6  # of a layer: two norms; queries with keys and values, projection, gate with up, down


def works(offsim, *settings):
    plan = offsim("plan", *sets("world_size=2", f"global_batch_size={2 * MICROBATCHES}", *settings),
                  "docs/examples/tiny-llama.yaml").stdout
    return [int(line.split()[2]) for line in plan.splitlines() if line.startswith("  host_work ")]


@pytest.mark.parametrize("strategy, gather, reduce", [("optim_grads_params", 45 + PARAMETERS, 65 + 5 * PARAMETERS),
                                                      ("optim_grads", 8, 57 + 3 * PARAMETERS),
                                                      ("optim", 8, 27 + 2 * PARAMETERS)])
def test_hooks_of_megatron_fsdp(offsim, strategy, gather, reduce):
    """Before a layer's forward and backward, and after its backward."""
    once = [gather] * LAYERS + [gather, reduce] * LAYERS
    assert works(offsim, "use_megatron_fsdp=true", f"data_parallel_sharding_strategy={strategy}") == once * MICROBATCHES


def test_norms(offsim):
    """Without APEX each parameter of which a rank steps a part costs five operators."""
    assert works(offsim, "gradient_accumulation_fusion=true") == []
    assert works(offsim, "gradient_accumulation_fusion=false", "clip_grad=0") == []
    alone, = works(offsim, "gradient_accumulation_fusion=false")
    sharded, = works(offsim, "gradient_accumulation_fusion=false", "use_distributed_optimizer=true")
    assert alone == 5 * (PARAMETERS * LAYERS + 3) and sharded < alone
