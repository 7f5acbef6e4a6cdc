"""Whatever is combined, a plan of `offload.mode: fixed` is safe.

The combinations are those of test_combinations.py without its nonsense, drawn so that those that change streams come
often: Megatron-LM's systems, overlap of the token exchange, captured graphs, fp8, recomputation, pipelines. With
--all-configurations more than 10,000 of them are legal; the others are skipped.
"""

import json
import random

import pytest

import test_combinations as combinations

SEEDS = 150
SEEDS_OF_ALL = 14000
LIMIT_S = 60
# The others run one system each on plain modules.
OFTEN = {"megatron": 8, "none": 4, "te_v2": 3, "megatron_pr1752": 2, "paged_stash": 2, "te_v1": 2, "trl": 2, "planned": 3}


def pytest_generate_tests(metafunc):
    every = metafunc.config.getoption("--all-configurations")
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(SEEDS_OF_ALL if every else SEEDS))


def streams(scenario):
    """How many of the settings that change who waits for whom it has."""
    parallel, training = scenario["parallel"], scenario["training"]
    return sum(map(bool, (parallel.get("overlap_moe_expert_parallel_comm"), training.get("cuda_graph_impl"),
                          training.get("fp8_format"), scenario["recompute"].get("recompute_modules"),
                          parallel.get("pipeline_model_parallel_size", 1) > 1)))


def draw_one(r, name, host):
    on_hf = host == "HF" or (host == "ANY" and r.random() < 0.3)
    scenario = combinations.draw_hf(r, name) if on_hf else combinations.draw_megatron(r, name)
    combinations.mend_hf(name, scenario) if on_hf else combinations.mend_megatron(r, name, scenario)
    scenario["offload"]["mode"] = "fixed"
    scenario["software"] = {"container": "pytorch:26.04-py3"}
    scenario["machine"] = {"name": r.choice(["H100-SXM", "B200"])}
    return scenario


def draw(seed):
    r = random.Random(f"safety {seed}")
    systems = [row for row in combinations.SYSTEMS for _ in range(OFTEN.get(row[0], 1))]
    name, _, host = r.choice(systems)
    for _ in range(8):
        scenario = draw_one(r, name, host)
        if scenario["model"]["implementation"] == "hf" or r.random() * 3 < streams(scenario):
            break
    return scenario


def test_fixed_is_safe(seed, offsim, tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(draw(seed), indent=1))
    run = offsim("check", path, limit_s=LIMIT_S)
    if run.status in (2, 3):
        pytest.skip(run.stderr.splitlines()[-1])
    assert run.status == 0, run.stdout[:2000] + run.stderr[-2000:]
