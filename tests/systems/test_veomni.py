"""Offload system veomni: what leaves and comes back, in order, is what VeOmni's own code did (tests/peers/veomni_offload.py)."""

import json
import re

import pytest

from conftest import ROOT, sets

RECORDED = json.loads((ROOT / "tests/data/veomni_offload.json").read_text())
BASE = ["offload.system=veomni", "attn_implementation=eager", f"seq_length={RECORDED['tokens']}", "micro_batch_size=1", "bf16=true",
        "optimizer=none"]
CHECKPOINTS = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
ADAPTERS = ["adapter=lora", "lora_r=4", "autocast_adapter_dtype=false"]
FSDP2 = ["fsdp=fsdp2", "world_size=3", "global_batch_size=3"]  # no weight has a multiple of three rows: shards are padded


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    path = tmp_path_factory.mktemp("veomni") / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-6, **RECORDED["shape"]}))
    return path


def copies(plan):
    """The bytes of each copy to the host, and of each back, in order."""
    bytes_of = {name: int(size) for name, size in re.findall(r"^  host_alloc host +(%\d+) .* (\d+) bytes pageable_host", plan, re.M)}
    return {"out": [bytes_of[to] for to in re.findall(r"^  d2h +compute .* -> (%\d+)", plan, re.M)],
            "back": [bytes_of[of] for of in re.findall(r"^  h2d +compute  (%\d+) ->", plan, re.M)]}


@pytest.mark.parametrize("ranks", [["global_batch_size=1"], FSDP2], ids=["alone", "fsdp2"])
@pytest.mark.parametrize("run", RECORDED["runs"], ids=lambda run: f"{run['checkpoints']} {run['adapters']} {run['activation_gpu_limit']}")
def test_the_same_tensors_in_the_same_order(offsim, shape, run, ranks):
    settings = [*BASE, *ranks, *CHECKPOINTS * run["checkpoints"], *ADAPTERS * run["adapters"],
                f"activation_gpu_limit={run['activation_gpu_limit']}"]
    done = offsim("plan", "--hf-config", shape, *sets(*settings), check=0)
    assert copies(done.stdout) == {"out": run["out"], "back": run["back"]}
    assert ("has no effect" in done.stderr) == (run["checkpoints"] and run["activation_gpu_limit"] > 0)


def test_verls_engine_with_it(offsim):
    """Qwen3-8B with checkpoints: the inputs of 36 layers and what is around them, in two micro-batches of 8 x 1536 tokens."""
    done = offsim("predict", "--verl", "docs/examples/verl-qwen3-8b.sh", "--hf-config", "docs/examples/verl-qwen3-8b.json",
                  "--arg", "actor_rollout_ref.actor.strategy=veomni", "--arg", "actor_rollout_ref.model.enable_activation_offload=True",
                  "--json", check=0)
    found = json.loads(done.stdout)
    rank = found["result"]["ranks"][0]
    tokens, hidden, vocabulary = 8 * 1536, 4096, 151936
    inputs = 36 * tokens * hidden * 2
    assert found["scenario"]["offload"]["system"] == "veomni"
    assert 2 * inputs < rank["d2h_bytes"] < 2 * (inputs + 4 * tokens * vocabulary)
    assert rank["host_pinned_peak_bytes"] == 0 < rank["host_pageable_peak_bytes"]
