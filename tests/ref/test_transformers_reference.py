"""`offsim run --on ref` against the classes of transformers: loss and gradients of tiny models of every family
that tests/oracle/transformers_reference.py has run, with each kind of attention."""

import json

import pytest

from conftest import ROOT, sets
from test_torch_reference import gradients_of

REFERENCE = json.loads((ROOT / "tests" / "oracle" / "transformers.json").read_text())
CONFIGS = ROOT / "tests" / "data" / "hf" / "tiny"
WITH_EXPERTS = ("deepseek-v2", "deepseek-v3", "glm4-moe", "gpt-oss", "mixtral", "qwen2-moe", "qwen3-moe",
                "qwen3-next", "qwen3-vl-moe", "qwen3.5-moe")
NOT_RUN = {"ministral3": "queries that are scaled by position",
           **dict.fromkeys(WITH_EXPERTS, "experts with model.implementation hf")}
TOLERANCE = 2e-5  # of a tensor's largest magnitude; both sides are fp32
# GLM 4 calls the norms around attention and MLP otherwise than Gemma.
GLM4_NORMS = {"post_attention_layernorm": "pre_feedforward_layernorm",
              "post_self_attn_layernorm": "post_attention_layernorm",
              "post_mlp_layernorm": "post_feedforward_layernorm"}


def name_of(model, theirs):
    parts = theirs.split(".")
    return ".".join(GLM4_NORMS.get(part, part) for part in parts) if model == "glm4" else theirs


def run(offsim, model, attention, *settings):
    config = CONFIGS / f"{model}.json"
    shape = ["implementation=hf", f"linearized_experts={str('linearized' in model).lower()}", f"seq_length={REFERENCE['length']}", f"micro_batch_size={REFERENCE['batch']}",
             f"global_batch_size={REFERENCE['batch']}", f"attn_implementation={attention}", "bf16=false"]
    return offsim("run", "--on", "ref", "--steps", 1, "--seed", REFERENCE["seed"], "--json", *settings,
                  "--hf-config", config, "--world-size", 1, "--machine", "ideal", *sets(*shape))


def test_every_family_was_run():
    models = sorted(p.stem for p in CONFIGS.glob("*.json") if p.stem not in NOT_RUN)
    assert sorted(of["model"] for of in REFERENCE["runs"]) == models


@pytest.mark.parametrize("model", NOT_RUN)
def test_others_are_refused(offsim, model):
    refused = run(offsim, model, "eager")
    assert refused.status == 2 and f"does not run {NOT_RUN[model]}" in refused.stderr


def test_a_short_window_is_refused(offsim):
    refused = run(offsim, "gemma3", "eager", "--set", "sliding_window=4")
    assert refused.status == 2 and "does not run a sliding window that is shorter" in refused.stderr


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flash_attention_2"])
@pytest.mark.parametrize("expected", REFERENCE["runs"], ids=lambda of: of["model"])
def test_agrees_with_transformers(offsim, tmp_path, expected, attention):
    capped = expected["model"] == "gemma2"
    if capped and attention != "eager":
        message = {"sdpa": "sdpa cannot do that", "flash_attention_2": "does not run attn_logit_softcapping"}
        refused = run(offsim, expected["model"], attention)
        assert refused.status == 2 and message[attention] in refused.stderr
        return
    if expected["model"].startswith("llama4") and attention == "flash_attention_2":
        refused = run(offsim, expected["model"], attention)
        assert refused.status == 2 and "transformers has no flash attention for it" in refused.stderr
        attention = "flex_attention"
    dump = tmp_path / "dump"
    found = run(offsim, expected["model"], attention, "--dump", dump)
    assert found.status == 0, found.stderr
    loss = json.loads(found.stdout)["steps"][0]["loss"]
    assert abs(loss - expected["loss"]) <= 1e-6 * expected["loss"]
    gradients = gradients_of(dump)
    of_theirs = {name_of(expected["model"], name): of for name, of in expected["gradients"].items()}
    assert sorted(gradients) == sorted(of_theirs)
    for name, of in of_theirs.items():
        assert len(gradients[name]) == of["elements"], name
        norm = sum(x * x for x in gradients[name]) ** 0.5
        assert abs(norm - of["norm"]) <= TOLERANCE * of["norm"] + 1e-9, name
        for index, value in of["samples"].items():
            error = abs(gradients[name][int(index)] - value)
            assert error <= TOLERANCE * of["largest"] + 1e-9, f"{name}[{index}] is off by {error}"
