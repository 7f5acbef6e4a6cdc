"""Full recomputation beside Megatron-LM's fine-grained offloading: the released manager sees the markers of a recomputed
layer twice (sim/offload/megatron.c)."""

import re

import pytest

from conftest import sets

LAYERS, RECOMPUTED = 4, 2
BLOCK = sets(f"num_layers={LAYERS}", "offload_modules=core_attn", "recompute_granularity=full", "recompute_method=block",
             f"recompute_num_layers={RECOMPUTED}")
SCENARIO = "docs/examples/one-layer.yaml"


def copies(offsim, mode):
    """Of a steady step's first micro-batch but one: (copies out in forward, out in backward, streams of copies back), by layer."""
    text = offsim("plan", *BLOCK, *sets(f"mode={mode}", "global_batch_size=3"), SCENARIO, check=0).stdout
    passes = dict(zip(*[iter(re.split(r"^(forward m1|backward m1) .*\n", text.split("\nforward m2")[0], flags=re.M)[1:])] * 2))
    found = [re.findall(r"^  d2h .* @ layer (\d+)", passes[kind], re.M) for kind in ("forward m1", "backward m1")]
    back = re.findall(r"^  h2d +(\w+) .* @ layer (\d+)", passes["backward m1"], re.M)
    return [sorted(set(map(int, layers))) for layers in found], sorted({(int(layer), stream) for stream, layer in back})


def test_every_group_comes_back_on_the_compute_stream(offsim):
    (forward, backward), back = copies(offsim, "as_released")
    assert forward == [2, 3]
    assert backward == [0, 1]
    assert back == [(layer, "compute") for layer in range(LAYERS)]


def test_fixed_offloads_only_what_forward_saves(offsim):
    (forward, backward), back = copies(offsim, "fixed")
    assert forward == [2]  # the last group of a name stays
    assert backward == []
    assert back == [(2, "h2d")]


@pytest.mark.parametrize("stages, says", [(4, 'stops with the assertion "Chunk mismatch"'), (2, "not modelled")])
def test_pipelines_stop(offsim, stages, says):
    pipeline = sets(f"pipeline_model_parallel_size={stages}", f"world_size={stages}", f"num_layers={2 * stages}",
                    "global_batch_size=8", "recompute_num_layers=1")
    done = offsim("predict", *BLOCK, *pipeline, "--set", "mode=as_released", SCENARIO, check=2)
    assert says in done.stderr
    assert "recomputing core_attn of layer 0 for micro-batch 0" in done.stderr
    offsim("predict", *BLOCK, *pipeline, "--set", "mode=fixed", SCENARIO, check=0)


def test_a_norm_empties_what_its_layer_is_recomputed_from(offsim):
    """With an attention that has a norm of its own."""
    latent = sets("multi_latent_attention=true", "q_lora_rank=64", "kv_lora_rank=64", "qk_layernorm=true")
    done = offsim("predict", *BLOCK, *latent, "--set", "offload_modules=attn_norm", SCENARIO, check=2)
    assert "attn_norm of layer 0 has emptied the input of the layer's checkpoint" in done.stderr
    offsim("predict", *BLOCK, *latent, "--set", "offload_modules=attn_norm", "--set", "mode=fixed", SCENARIO, check=0)
