"""model.implementation hf: peaks and step times measured on an H200 (tests/peers/hf_reference.py: PyTorch 2.11,
transformers 5.17), and what it refuses."""

import json

import pytest

from conftest import sets

SCENARIO = "docs/examples/hf-16-layers.yaml"
RECOMPUTED = ("recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1")
REENTRANT = (*RECOMPUTED, "use_reentrant=true")
QWEN3 = ("fused_projections=false", "fused_rms_norm=false", "position_embedding_type=rope",
         "qk_layernorm=true", "num_layers=4", "ffn_hidden_size=12288", "vocab_size=151936",
         "max_position_embeddings=40960")
EAGER = ("attn_implementation=eager", "seq_length=2048")


@pytest.fixture(scope="module")
def rank(offsim):
    def run(*settings):
        found = json.loads(offsim("predict", SCENARIO, *sets(*settings), "--json", check=0).stdout)
        return found["baseline"]["ranks"][0]
    return run


# What was measured takes its token ids for labels; a trainer holds a tensor of each.
LABELS_BYTES = 8192 * 8


@pytest.mark.parametrize("settings, peak", [((), 40_384_464_384), (RECOMPUTED, 19_428_656_640),
                                            (REENTRANT, 19_428_656_640)])
def test_peaks_of_the_plain_model(rank, settings, peak):
    found = rank(*settings)
    assert found["static_bytes"] == 15_074_935_296
    assert found["allocated_peak_bytes"] == pytest.approx(peak + LABELS_BYTES, abs=4096)


# Over parameters and gradients: allocated beyond what lives between two steps.
@pytest.mark.parametrize("settings, over", [
    (QWEN3, 22_264_714_240),
    ((*QWEN3, *RECOMPUTED), 15_477_081_088),
    ((*QWEN3, *REENTRANT), 15_477_081_088),
    ((*QWEN3, *EAGER), 8_888_067_072),
])
def test_peaks_of_qwen3(rank, settings, over):
    found = rank(*settings)
    assert found["allocated_peak_bytes"] - found["static_bytes"] == pytest.approx(over, rel=0.001)


# Short sequences wait for the host thread, long ones for the GPU at its power limit.
@pytest.mark.parametrize("settings, milliseconds", [
    ((), 372.5), (RECOMPUTED, 469.2), (REENTRANT, 479.0), (QWEN3, 158.5), ((*QWEN3, *RECOMPUTED), 187.0)])
def test_step_times(rank, settings, milliseconds):
    assert rank(*settings)["step_time_s"] * 1000 == pytest.approx(milliseconds, rel=0.08)


# An H100, of which nothing but its memory's rate was taken to be other than an H200's.
H100 = ("machine.name=H100-SXM",)
EIGHT = (*H100, "num_layers=8")


@pytest.mark.parametrize("settings, milliseconds", [
    (H100, 370.4), ((*H100, *RECOMPUTED), 465.1), ((*H100, *REENTRANT), 486.9),
    ((*EIGHT, "seq_length=1024"), 27.2), ((*EIGHT, "seq_length=2048"), 48.3),
    ((*EIGHT, "seq_length=4096"), 93.5)])
def test_step_times_of_another_gpu(rank, settings, milliseconds):
    assert rank(*settings)["step_time_s"] * 1000 == pytest.approx(milliseconds, rel=0.08)


# The host issues kernels more slowly than the GPU runs them; and in between.
@pytest.mark.parametrize("tokens, settings, milliseconds", [
    (64, (), 19.0), (512, (), 27.6), (2048, (), 86.3),
    (64, (*QWEN3, "num_layers=8"), 31.0), (512, (*QWEN3, "num_layers=8"), 34.1),
    (2048, (*QWEN3, "num_layers=8"), 66.6)])
def test_step_times_of_short_sequences(rank, tokens, settings, milliseconds):
    found = rank(*settings, f"seq_length={tokens}", "max_position_embeddings=40960")["step_time_s"]
    assert found * 1000 == pytest.approx(milliseconds, rel=0.15)


# A recomputation ends when everything is saved again: the last product of each layer does not run.
def test_a_reentrant_checkpoint_runs_one_product_more(offsim):
    def products(*settings):
        plan = offsim("plan", SCENARIO, *sets(*settings), check=0).stdout
        return sum(" gemm " in line for line in plan.splitlines())
    forward = 4 * 16 + 1
    assert products() == 3 * forward
    assert products(*RECOMPUTED) == 3 * forward + 3 * 16
    assert products(*REENTRANT) == 3 * forward + 4 * 16


def test_the_vocabulary_is_not_padded(offsim):
    shown = offsim("predict", SCENARIO, *sets("vocab_size=32001"), "--print-scenario", check=0).stdout
    assert "padded_vocab_size: 32001" in shown


def test_the_output_layer_is_excluded_where_trl_does_so(rank, offsim):
    def moved(*settings):
        found = json.loads(offsim("predict", SCENARIO, *sets(*settings), "--json", check=0).stdout)
        return found["result"]["ranks"][0]["d2h_bytes"]
    normed = 8192 * 4096 * 2
    assert moved("system=trl") - moved("system=trl", "exclude_output_layer=true") == normed
    assert moved("system=save_on_cpu") == moved("system=save_on_cpu", "exclude_output_layer=true")


@pytest.mark.parametrize("settings, message", [
    (["tensor_model_parallel_size=2"], "tensor_model_parallel_size is 2; with model.implementation hf it must be 1"),
    (["pipeline_model_parallel_size=2"], "pipeline_model_parallel_size is 2"),
    (["context_parallel_size=2"], "hf cp_comm_type must be a2a: Ulysses sequence parallelism"),
    (["use_megatron_fsdp=true"], "use_megatron_fsdp does not work with model.implementation hf"),
    (["num_experts=8", "moe_router_enable_expert_bias=true"], "hf moe_router_num_groups must be 0, and"),
    (["num_experts=8", "moe_router_score_function=sigmoid"], "hf moe_router_score_function must be softmax"),
    (["multi_latent_attention=true", "group_query_attention=false"], "hf multi_latent_attention must be false with"),
    (["attention_sinks=true", "attn_implementation=sdpa"], "hf attn_implementation must be eager or"),
    (["normalization=LayerNorm"], "hf normalization must be RMSNorm"),
    (["swiglu=false"], "hf swiglu must be true where hidden_act is silu"),
    (["squared_relu=true", "swiglu=false", "hidden_act=gelu"], "hf squared_relu must be false"),
    (["position_embedding_type=learned_absolute"], "hf position_embedding_type must be rope, mrope, yarn or none"),
    (["rotary_percent=0.01", "position_embedding_type=rope"], "hf rotary_percent must leave an even number"),
    (["attn_logit_softcapping=50"], "hf attn_implementation must be eager or flash_attention_2 where"),
    (["final_logit_softcapping=30", "liger_fused_linear_cross_entropy=true"],
     "hf liger_fused_linear_cross_entropy must be false with final_logit_softcapping"),
    (["sliding_window=1024", "sliding_window_layers=[1,0]"], "sliding_window_layers has 2 entries"),
    (["rope_layers=[2]"], "rope_layers is \"[2]\", wrong from character 2 on"),
    (["implementation=te", "keep_gradients=false", "fused_projections=false", "layer_norms=sandwich"], "layer_norms needs model.implementation hf; it is te"),
    (["fp32_residual_connection=true"], "hf fp32_residual_connection must be false"),
    (["fp8_format=hybrid"], "hf fp8_format must be empty"),
    (["cuda_graph_impl=local"], "hf cuda_graph_impl must be none"),
    (["lora.adapter=lora"], "hf fused_projections must be false with lora.adapter"),
    (["recompute_granularity=selective"], "recompute_granularity must be full or empty"),
    ([*RECOMPUTED, "recompute_method=block"], "hf recompute_method must be uniform"),
    ([*RECOMPUTED, "recompute_num_layers=2"], "hf recompute_num_layers must be 1"),
    (["system=megatron"], "offload system megatron needs model.implementation te or local; it is hf"),
    (["implementation=te", "system=trl"], "offload system trl needs model.implementation hf; it is te"),
])
def test_refused(offsim, settings, message):
    run = offsim("predict", SCENARIO, *sets(*settings))
    errors = [line for line in run.stderr.splitlines() if "error" in line]
    assert run.status == 2 and len(errors) == 1
    assert message in errors[0]
