"""The bound that tune prints for a budget: no setting is faster in what it allocates, for any model and machine."""

import json
import random

import pytest

LAYERS = "docs/examples/hf-layers.yaml"
MEGATRON = "docs/examples/one-layer.yaml"


def draw(seed):
    d = random.Random(seed)
    arguments = ["--machine", d.choice(["H200-SXM", "H100-SXM", "A100-SXM-PCIe4", "GB200"])]
    sets = {"num_layers": d.choice([2, 3, 5]), "seq_length": d.choice([1024, 2048, 4096]),
            "global_batch_size": d.choice([1, 1, 2])}
    for key, least, most in (("link.d2h_bytes_per_us", 8, 500), ("link.h2d_bytes_per_us", 8, 500),
                             ("gpu.power_limit_w", 300, 900)):
        if d.random() < 0.6:
            arguments += ["--machine-set", f"{key}={d.randint(least, most) * (1000 if 'link' in key else 1)}"]
    if seed % 3 < 2:
        scenario = LAYERS
        sets.update(vocab_size=d.choice([8000, 32000]), ffn_hidden_size=d.choice([4096, 14336]))
    else:
        scenario = MEGATRON
        sets.update({"offload.mode": "fixed"})
        if sets["num_layers"] == 2:
            sets.update(pipeline_model_parallel_size=2, world_size=2)
    for key, value in sets.items():
        arguments += ["--set", f"{key}={value}"]
    return [scenario, *arguments]


def tune(offsim, *arguments):
    return json.loads(offsim("tune", *arguments, "--json", check=0).stdout)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_faster_in_what_it_allocates(offsim, seed):
    """tune itself asserts it for every setting that fits a budget; here each budget is what a setting of the front takes."""
    arguments = draw(seed)
    front = tune(offsim, *arguments, "--front", "--exhaustive")["best"]
    assert front
    for one in front[:: max(1, len(front) // 6)]:
        found = tune(offsim, *arguments, "--best", 1, "--gpu-memory", one["allocated_peak_bytes"] / 2**30)
        assert found["budget_bound_s"] <= one["step_time_s"]
