"""`offsim compare`: two runs of the reference executor, and what it says of them."""

import json
import re

import pytest

from conftest import ROOT, documented_json_keys, one_error, sets

LLAMA = ROOT / "tests" / "oracle" / "llama.yaml"
OFFLOAD = ("bf16=true", "fine_grained_activation_offloading=true", "offload_modules=core_attn,attn_proj",
           "min_offloaded_tensor_size=1")
RECOMPUTE = ("bf16=true", "recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1")
RUNS = {
    "plain": sets("bf16=true"),
    "again": sets("bf16=true"),
    "interleaved": [*sets("bf16=true"), "--interleave", "5"],
    "offload": sets(*OFFLOAD),
    "recompute": sets(*RECOMPUTE),
    "other-seed": [*sets("bf16=true"), "--seed", "2"],
    "pp2": sets("bf16=true", "pipeline_model_parallel_size=2"),
    "pp2-recompute": sets(*RECOMPUTE, "pipeline_model_parallel_size=2"),
}


@pytest.fixture(scope="module")
def traces(offsim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    paths = {}
    for name, options in RUNS.items():
        paths[name] = folder / f"{name}.jsonl"
        offsim("run", "--on", "ref", "--steps", 2, "--record", paths[name], LLAMA, *options, check=0)
    paths["sim"] = folder / "sim.jsonl"
    offsim("predict", "--record", paths["sim"], LLAMA, *RUNS["plain"], check=0)
    return paths


def compared(offsim, a, b, *options, status):
    return json.loads(offsim("compare", "--json", *options, a, b, check=status).stdout)


@pytest.mark.parametrize("other", ["again", "interleaved"])
def test_same_run(offsim, traces, other):
    found = compared(offsim, traces["plain"], traces[other], status=0)
    assert found["same"] and found["same_order"] and found["same_bytes"]
    assert found["ops_only_a"] == found["ops_only_b"] == 0
    assert found["outputs_compared"] > found["ops_compared"] > 100


@pytest.mark.parametrize("a, b", [("plain", "offload"), ("plain", "recompute"), ("pp2", "pp2-recompute")])
def test_other_ops_same_bits(offsim, traces, a, b):
    """Offload and recomputation issue other ops; every op of the plain run is paired, or nearly so."""
    found = compared(offsim, traces[a], traces[b], "--outputs", status=0)
    assert found["same"] and not found["same_order"]
    assert found["outputs_differ"] == 0 and found["ops_compared"] >= 0.9 * found["a"]["ops"]
    assert compared(offsim, traces[a], traces[b], status=1)["same"] is False


def test_other_bits(offsim, traces):
    """Another seed: the weights and tokens differ, so the first op that reads both is the first to differ."""
    found = compared(offsim, traces["plain"], traces["other-seed"], "--outputs", status=1)
    first = found["first_other_output"]
    assert first["op"]["a"]["name"] == "embedding_forward" and first["op"]["a"]["step"] == 0
    assert first["fingerprint_a"] != first["fingerprint_b"]
    assert 0 < found["outputs_differ"] < found["outputs_compared"]


def test_culprit_is_named(offsim, traces, tmp_path):
    """One wrong fingerprint: the op is found, with its place and buffer."""
    lines = traces["plain"].read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"step":1' in line and '"module":"mlp.linear_fc2"' in line)
    digits = re.search(r'"fingerprint":"(\w{32})"', lines[at])[1]
    lines[at] = lines[at].replace(digits, digits[::-1])
    changed = tmp_path / "changed.jsonl"
    changed.write_text("\n".join(lines) + "\n")
    run = offsim("compare", traces["plain"], changed, check=1)
    assert "1 differ, the first of" in run.stdout
    op = json.loads(lines[at])
    assert f"step 1 rank 0 op {op['op']}: kernel {op['call']} on compute @ layer 0 mlp.linear_fc2" in run.stdout
    assert f"a  {digits} {op['outputs'][0]['buffer']}" in run.stdout


def test_simulated_steady_step_has_the_executed_memory(offsim, traces, tmp_path):
    """The simulator's record and the second step: the same ops, and the same bytes at each, although
    the executor adds up its own arrays."""
    header, *lines = traces["plain"].read_text().splitlines()
    steady = [line.replace('"step":1', '"step":0') for line in lines if '"step":1' in line]
    second = tmp_path / "second.jsonl"
    second.write_text("\n".join([header.replace('"steps":2', '"steps":1'), *steady]) + "\n")
    found = compared(offsim, traces["sim"], second, status=0)
    assert found["same_order"] and found["same_bytes"] and found["outputs_compared"] == 0


def test_contents_must_be_known(offsim, traces):
    error = one_error(offsim("compare", "--outputs", traces["sim"], traces["plain"]), 2)
    assert "no op in common whose contents both know" in error


def test_wrong_files(offsim, traces, tmp_path):
    assert "cannot open it" in one_error(offsim("compare", tmp_path / "none", traces["plain"]), 2)
    cut = tmp_path / "cut.jsonl"
    cut.write_text(traces["plain"].read_text()[:-20])
    lines = cut.read_text().count("\n") + 1
    assert re.search(rf"cut\.jsonl:{lines}:\d+: error: ", one_error(offsim("compare", cut, traces["plain"]), 2))
    assert "compare takes two traces; found 1" in one_error(offsim("compare", cut), 2)


def test_json_is_documented(offsim, traces):
    found = compared(offsim, traces["plain"], traces["other-seed"], status=1)
    *top, = found
    documented = documented_json_keys("## Two traces", until="\n## A prediction")
    assert documented == [*top, *found["ranks"][0]]
