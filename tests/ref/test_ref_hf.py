"""Plain PyTorch models in the reference execution: gradients are those of the loss, replicas and shards change no
bit, and what verl's offload gets wrong is found."""

import json

import pytest

from conftest import sets

SCENARIO = "docs/examples/tiny-llama-hf.yaml"
VERL = ("offload.system=verl",)
CHECKPOINTS = ("recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1")


@pytest.fixture(scope="module")
def run(offsim):
    def run(*settings, steps=2, options=()):
        done = offsim("run", "--on", "ref", "--steps", steps, "--json", *options, *sets(*settings), SCENARIO, check=0)
        return json.loads(done.stdout)
    return run


# To first order a step of plain descent takes rate x |gradient|^2 off the loss, whichever tensor it comes from. The
# rate is so small that the second order is within a hundredth, so large that fp32 losses show a thousandth.
@pytest.mark.parametrize("settings, rate", [
    ((), 1e-3),
    (("attn_implementation=eager", "micro_batch_size=2"), 1e-3),
    (("attn_implementation=eager", "num_query_groups=4", "position_embedding_type=none"), 1e-3),
    (("attn_implementation=flash_attention_2", "fused_projections=true"), 1e-3),
    (("fused_projections=true", "qk_layernorm=true", "fused_rms_norm=false"), 1e-3),
    (("fused_rms_norm=false", "qk_layernorm=true", "micro_batch_size=2"), 1e-3),
    (("untie_embeddings_and_output_weights=false", "add_qkv_bias=true", "add_bias_linear=true"), 3e-4),
    (("training.loss=log_probs", "global_batch_size=4"), 1e-3),
], ids=["plain", "eager", "every_head_its_own", "flash", "fused", "unfused", "biases", "log_probs"])
def test_the_loss_falls_by_what_the_gradient_says(run, settings, rate):
    first, second = run(*settings, "bf16=false", "optimizer=sgd", "clip_grad=0",
                        options=("--same-batch", "--learning-rate", rate))["steps"]
    assert first["loss"] - second["loss"] == pytest.approx(rate * first["grad_norm"] ** 2, rel=0.01)


# The gradients of two sequences are added once, in one rank or between two, and halved, which is exact.
def test_two_replicas_are_two_micro_batches(run):
    alone, both = run(), run("world_size=2")
    for key in ("loss_bits", "grads_fingerprint", "params_fingerprint"):
        assert [step[key] for step in alone["steps"]] == [step[key] for step in both["steps"]]


# Sharded parameters are gathered, and gradients come back, through copies and types that keep every bit.
@pytest.mark.parametrize("settings", [(), ("fsdp_reduce_dtype=fp32",), CHECKPOINTS],
                         ids=["plain", "fp32", "checkpoints"])
def test_fsdp2_changes_no_bit(run, settings):
    assert run("fsdp=fsdp2", *settings)["steps"] == run()["steps"]


# What checkpoints keep leaves from 1 MiB on, and comes back as it lay: scaled_dot_product_attention's result has heads
# before positions, the output projection reads the same memory row by row.
SELECTIVE = (*CHECKPOINTS, "offload.system=selective_checkpointing")
LARGE = ("num_layers=3", "hidden_size=256", "ffn_hidden_size=64", "micro_batch_size=64", "global_batch_size=64")


@pytest.mark.parametrize("model", [(), ("attn_implementation=flash_attention_2",), ("fused_projections=true",)],
                         ids=["sdpa", "flash", "fused"])
@pytest.mark.parametrize("more, copies", [((), 3), (("selective_checkpointing_hidden_states=true",), 6)],
                         ids=["alone", "hidden_states"])
def test_selective_checkpoints_change_no_bit(offsim, run, model, more, copies):
    plan = offsim("plan", *sets(*LARGE, *model, *SELECTIVE, *more), SCENARIO, check=0).stdout
    assert plan.count("\n  d2h  ") == copies
    kept, offloaded = (run(*LARGE, *model, *offload, steps=1)["steps"] for offload in ((), (*SELECTIVE, *more)))
    assert kept == offloaded


def test_fsdp1_is_refused(offsim):
    done = offsim("run", "--on", "ref", "--set", "fsdp=fsdp", SCENARIO, check=2)
    assert "does not run FSDP1" in done.stderr


# verl takes saved tensors that begin at one place of a storage for one tensor and gives each a view of the first
# one's copy (verl/utils/activation_offload.py, bulk_offload_group and bulk_reload_group). What
# scaled_dot_product_attention saves of its result has heads before positions; the output projection's input, the
# same memory, has not: its rows come back in the wrong order, and its weight's gradient is wrong. The last layer is
# not offloaded. Checkpoints save neither.
def test_verl_mixes_up_the_heads_of_sdpa(run):
    kept, offloaded = (run(*more, steps=1, options=("--tensors",))
                       for more in ((), ("fsdp=fsdp2", *VERL, "offload.mode=as_released")))
    assert kept["steps"][0]["loss_bits"] == offloaded["steps"][0]["loss_bits"]
    wrong = [one["name"] for one, other in zip(kept["tensors"], offloaded["tensors"])
             if one["gradient"] != other["gradient"]]
    assert wrong == [f"layers.{layer}.self_attn.o_proj.weight" for layer in range(3)]


@pytest.mark.parametrize("mode, settings", [
    ("fixed", ()), ("as_released", ("attn_implementation=eager",)),
    ("as_released", ("attn_implementation=flash_attention_2",)), ("as_released", CHECKPOINTS),
], ids=["fixed", "eager", "flash", "checkpoints"])
def test_verl_elsewhere_changes_no_bit(run, mode, settings):
    assert run(*settings, "fsdp=fsdp2", *VERL, f"offload.mode={mode}")["steps"] == run(*settings)["steps"]
