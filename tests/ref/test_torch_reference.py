"""`offsim run --on ref` against PyTorch: loss and gradients of tiny models, which tests/oracle/reference.py
has computed in float64. Here the numbers are fp32, in several layouts and with several choices of kernels."""

import json

import pytest

from conftest import ROOT, sets

ORACLE = ROOT / "tests" / "oracle"
MODELS = ("llama", "gpt", "hf-llama", "hf-lora", "qwen3-moe", "deepseek")
TOLERANCE = 1e-5  # of a tensor's largest magnitude
PP2 = "pipeline_model_parallel_size=2"
# Twice the mean: no rank is sent more rows than the plan has room for, so none are dropped.
EP2 = ["expert_model_parallel_size=2", "world_size=2", "moe_imbalance=2"]
RECOMPUTE = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
EXPERTS = {
    "allgather": ["moe_token_dispatcher_type=allgather"],
    "fused": ["moe_permute_fusion=true", "moe_router_fusion=true", "cross_entropy_loss_fusion=true"],
    "unfused": ["apply_rope_fusion=false", "bias_activation_fusion=false", "bias_dropout_fusion=false",
                "masked_softmax_fusion=false", "gradient_accumulation_fusion=false"],
    "selective": ["recompute_granularity=selective", "recompute_modules=moe_act,layernorm"],
}
RUNS = {
    "llama": {"alone": [], "local": ["transformer_impl=local"], "recompute": RECOMPUTE,
              "tp2": ["tensor_model_parallel_size=2"],
              "tp2-sp": ["tensor_model_parallel_size=2", "sequence_parallel=true"],
              "pp2": [PP2], "pp2-dp2": [PP2, "world_size=4"]},
    "gpt": {"alone": [], "recompute": RECOMPUTE,
            "tp2-sp": ["tensor_model_parallel_size=2", "sequence_parallel=true"]},
    "hf-llama": {"alone": [], "eager": ["attn_implementation=eager"], "unfused-norm": ["fused_rms_norm=false"],
                 "liger": ["liger_glu_activation=true", "liger_fused_linear_cross_entropy=true"],
                 "dp2": ["world_size=2"]},
    # As B is 0 in the first step, so are all gradients of A.
    "hf-lora": {"alone": [],
                "fused": ["lora_qkv_kernel=true", "lora_o_kernel=true", "lora_mlp_kernel=true"]},
    "qwen3-moe": {"alone": [], "recompute": RECOMPUTE, "pp2": [PP2], "dp2": ["world_size=2"], "ep2": EP2,
                  "pp2-ep2": [PP2, *EP2, "world_size=4"], **EXPERTS},
    "deepseek": {"alone": [], "dp2": ["world_size=2"], "ep2": EP2, "overlap": ["moe_shared_expert_overlap=true"],
                 **EXPERTS},
}
COVERED = [(model, layout) for model in MODELS for layout in RUNS[model]]
# Megatron's own modules call the norms before a linear by their own names.
LOCAL_NAMES = {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
               "mlp.linear_fc1.layer_norm_weight": "pre_mlp_layernorm.weight"}


@pytest.fixture(scope="module")
def reference():
    return {model: json.loads((ORACLE / f"{model}.json").read_text()) for model in MODELS}


def gradients_of(dump):
    """{name: elements}"""
    tensors = map(json.loads, dump.read_text().splitlines())
    return {t["name"]: [float.fromhex(x) for x in t["values"]] for t in tensors if t["kind"] == "gradient"}


def local_name(name):
    for ours, theirs in LOCAL_NAMES.items():
        name = name.replace(ours, theirs)
    return name


@pytest.mark.parametrize("model, layout", COVERED)
def test_agrees_with_torch(offsim, reference, tmp_path, model, layout):
    expected = reference[model]
    dump = tmp_path / "dump"
    run = offsim("run", "--on", "ref", "--steps", 1, "--seed", expected["seed"], "--json", "--dump", dump,
                 ORACLE / f"{model}.yaml", *sets(*RUNS[model][layout]), check=0)
    loss = json.loads(run.stdout)["steps"][0]["loss"]
    assert abs(loss - expected["loss"]) <= 1e-6 * expected["loss"]
    found = gradients_of(dump)
    gradients = expected["gradients"]
    if layout == "local":
        gradients = {local_name(name): of for name, of in gradients.items()}
    assert sorted(found) == sorted(gradients)
    for name, of in gradients.items():
        assert len(found[name]) == of["elements"], name
        norm = sum(x * x for x in found[name]) ** 0.5
        assert abs(norm - of["norm"]) <= TOLERANCE * of["norm"], name
        for index, value in of["samples"].items():
            error = abs(found[name][int(index)] - value)
            assert error <= TOLERANCE * of["largest"], f"{name}[{index}] is off by {error}"


@pytest.mark.parametrize("model", ["qwen3-moe", "deepseek"])
def test_choices_of_experts_are_not_close(reference, model):
    """Otherwise a rounding error could make fp32 choose otherwise than float64."""
    assert reference[model]["margin"] > 1e-4
