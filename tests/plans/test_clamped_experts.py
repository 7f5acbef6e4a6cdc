"""Clamped activations of experts (GPT-OSS): a new tensor of both halves for each layer, which autograd keeps beside fc1's
output; offloaded and recomputed with the other tensors of moe_act."""

import json
import re

import pytest

from conftest import one_error, sets

LAYERS, SEQUENCE, TOPK, FFN = 2, 4096, 2, 512
MODEL = ["docs/examples/one-layer.yaml",
         *sets(f"num_layers={LAYERS}", "num_experts=4", f"moe_router_topk={TOPK}", f"moe_ffn_hidden_size={FFN}",
               "moe_grouped_gemm=true", "swiglu=true", "add_bias_linear=false")]
WITHOUT_OFFLOAD = ["offload_modules=", "fine_grained_activation_offloading=false"]
CLAMP = "activation_func_clamp_value=7"
CLAMPED_BYTES = SEQUENCE * TOPK * 2 * FFN * 2


def peak(offsim, *settings):
    found = json.loads(offsim("predict", *MODEL, *sets(*settings), "--brief", "--json", check=0).stdout)
    return found["result"]["ranks"][0]


@pytest.mark.parametrize("settings", [[], ["quick_geglu=true", "swiglu=false"], ["bias_activation_fusion=false"]])
def test_it_is_kept_beside_the_input(offsim, settings):
    def kept(*more):
        text = offsim("plan", *MODEL, *sets(*WITHOUT_OFFLOAD, *settings, *more), check=0).stdout
        assert "0 errors" in offsim("check", "--plan", "-", stdin=text, check=0).stdout
        saved = re.findall(r"alloc +compute .* (\d+) bytes saved @ layer \d+ mlp.experts.activation_func", text)
        return saved.count(str(CLAMPED_BYTES))

    assert kept(CLAMP) == kept() + LAYERS


@pytest.mark.parametrize("settings", [["offload_modules=moe_act"], ["offload_modules=expert_fc1,moe_act"]])
def test_it_leaves_with_moe_act(offsim, settings):
    copied = peak(offsim, *settings, CLAMP)["d2h_bytes"] - peak(offsim, *settings)["d2h_bytes"]
    assert copied > 0 and copied % CLAMPED_BYTES == 0
    told = offsim("check", *MODEL, *sets(*settings, CLAMP, "offload.mode=fixed")).stdout
    assert "0 errors" in told


def test_recomputation_discards_it(offsim):
    recompute = [*WITHOUT_OFFLOAD, "recompute_granularity=selective", "recompute_modules=moe_act"]
    text = offsim("plan", *MODEL, *sets(*recompute, CLAMP), check=0).stdout
    assert "0 errors" in offsim("check", "--plan", "-", stdin=text, check=0).stdout
    assert len(re.findall(r"kernel +compute +elementwise .*activation_func", text)) == 3 * LAYERS


def test_others_are_not_modelled(offsim):
    dense = offsim("predict", "docs/examples/one-layer.yaml", *sets("swiglu=true", CLAMP), check=0)
    assert "only clamps of experts' gated activations are modelled" in dense.stderr
    run = offsim("run", "--on", "ref", *MODEL, *sets(CLAMP))
    assert "the reference execution does not run clamped activations" in one_error(run, 2)
