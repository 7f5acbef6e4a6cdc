"""A pipeline's schedule refers to the last input of each chunk until the next step. Where offloading has emptied it, only the
input's gradient stays (Megatron-LM, transformer_layer.py: forced_released_tensors)."""

import pytest

from conftest import sets

CHUNKS = 3  # with an input: two stages of two virtual stages, less the one with the embedding


def kept(offsim, *settings):
    """Inputs that stay after a step, and gradients of inputs."""
    scenario = [*sets(*settings), "docs/examples/tiny-deepseek.yaml"]
    text = offsim("plan", *scenario, check=0).stdout
    residents = [line.split() for line in text.splitlines() if line.startswith("  resident")]
    return tuple(sum(name in words for words in residents) for name in ("pipeline.input_tensor", "pipeline.input_tensor_grad"))


@pytest.mark.parametrize("settings, inputs", [
    (["offload_modules=attn_norm"], 0),
    (["offload_modules=core_attn"], CHUNKS),
    (["offload_modules=attn_norm", "activation_offload_fraction=0"], CHUNKS),
    (["offload_modules=attn_norm", "min_offloaded_tensor_size=1000000"], CHUNKS),
    # The last stage's only layer comes back next, and its group stays.
    (["offload_modules=attn_norm", "mtp_num_layers=0"], 1),
])
def test_inputs_that_stay(offsim, settings, inputs):
    assert kept(offsim, *settings) == (inputs, CHUNKS)
