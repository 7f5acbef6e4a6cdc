"""Races that offload code has had: each is found in the files of tests/known_bugs, and its fix
passes.

A scenario runs the code as released, and `--set mode=fixed` its fix; a plan's fix is a file next
to it. docs/06-races.md describes them.
"""

import json
import re

import pytest

from conftest import ROOT, one_error

FOLDER = ROOT / "tests/known_bugs"
# By file: (iteration, kind, first op, second op) of a finding that it must have, as patterns.
SCENARIOS = {
    "megatron-inline-reload": ("warmup", "read_before_write", r"d2h +d2h ", r"h2d +compute "),
    "megatron-late-reload": ("warmup", "read_before_write", r"h2d +h2d ", r"kernel +compute .* pre_mlp_layernorm"),
    "megatron-early-recompute": ("steady", "read_before_write", r"h2d +h2d ", r"kernel +compute .*linear_q_up_proj"),
    "megatron-delayed-weight-gradient": ("steady", "block_reused", r"kernel +compute +grouped_gemm .*linear_fc", r"recv +previous "),
    "megatron-pr1752-last-group": ("steady", "read_before_write", r"d2h +d2h ", r"h2d +h2d "),
    "trl-clone-on-copy-stream": ("steady", "block_reused", r"kernel +compute .* @ loss", r"h2d +d2h "),
    "trl-gradient-in-saved-memory": ("steady", "block_reused", r"kernel +compute +rmsnorm_gain", r"h2d +d2h "),
    "axolotl-layer-offloading": ("steady", "read_before_write", r"h2d +h2d .* @ layer 0 ", r"d2h +compute "),
}
PLANS = {
    "torchtune-1867": ("block_reused", r"kernel +compute ", r"h2d +d2h "),
    "axolotl-prefetched-blocks": ("block_reused", r"kernel +compute ", r"h2d +h2d "),
    "megatron-host-pool": ("host_buffer_reused", r"h2d +h2d ", r"d2h +d2h "),
    "megatron-full-iteration-graph": ("never_reusable", r"d2h +d2h ", r"free +compute .* after d2h"),
    "megatron-throttle-across-graphs": ("never_reusable", r"d2h +d2h ", r"free +compute .* after d2h"),
    "torchtitan-2581": ("read_before_write", r"kernel +compute ", r"d2h +copy_out "),
}
# What a plan has beside that; this one's copy out also overwrites what the step before still reads.
TOO = {"torchtitan-2581": {"write_before_read"}}
# Nothing is unsafe: the tensors that should leave stay.
STAYS = "megatron-absorbed-mla"
WARNINGS = {"never_reusable"}


def check(offsim, *arguments):
    done = offsim("check", "--json", *arguments)
    assert done.status in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["safe"] == (done.status == 0)
    return found


def has_finding(found, iteration, kind, first, second):
    return any(finding["iteration"] == iteration and finding["kind"] == kind and
               re.match(first, finding["ops"][0]["text"]) and re.match(second, finding["ops"][-1]["text"])
               for finding in found["findings"])


def graver(found):
    return [finding for finding in found["findings"] if finding["severity"] != "advice"]


def test_every_file_is_here():
    names = {f"{name}.yaml" for name in SCENARIOS}
    names |= {name + end for name in (*PLANS, STAYS) for end in (".plan", ".fixed.plan")}
    assert {path.name for path in FOLDER.iterdir()} == names


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(offsim, name):
    path = FOLDER / f"{name}.yaml"
    found = check(offsim, path)
    assert not found["safe"] and has_finding(found, *SCENARIOS[name]), graver(found)
    assert graver(check(offsim, "--set", "mode=fixed", path)) == []


@pytest.mark.parametrize("modules", ["qkv_linear", "qkv_linear,core_attn"])
def test_a_recomputation_before_every_marker_stops_the_released_code(offsim, modules):
    path = FOLDER / "megatron-early-recompute.yaml"
    message = one_error(offsim("check", "--set", f"offload_modules={modules}", path, check=2), 2)
    assert "'NoneType' object has no attribute 'tensor_pop'" in message and "qkv_linear of layer 1" in message
    assert check(offsim, "--set", f"offload_modules={modules}", "--set", "mode=fixed", path)["safe"]


@pytest.mark.parametrize("name", PLANS)
def test_plan(offsim, name):
    path = FOLDER / f"{name}.plan"
    kind, first, second = PLANS[name]
    found = check(offsim, "--plan", path)
    assert has_finding(found, str(path), kind, first, second), graver(found)
    assert {finding["kind"] for finding in graver(found)} == {kind} | TOO.get(name, set())
    assert found["safe"] == (kind in WARNINGS)
    assert graver(check(offsim, "--plan", FOLDER / f"{name}.fixed.plan")) == []


def test_a_wait_on_itself_lets_the_next_step_overwrite_what_is_read(offsim):
    found = check(offsim, "--plan", FOLDER / "torchtitan-2581.plan")
    (over,) = [finding for finding in graver(found) if finding["kind"] == "write_before_read"]
    assert re.match(r"h2d +copy_in ", over["ops"][0]["text"]) and over["ops"][0]["op"] > over["ops"][-1]["op"]
    assert over["missing_edge"]["stream"] == "copy_out" and over["missing_edge"]["waits_for"] == "copy_in"


def test_what_stays_by_mistake_costs_memory(offsim):
    peaks = []
    for end in (".plan", ".fixed.plan"):
        path = FOLDER / (STAYS + end)
        assert graver(check(offsim, "--plan", path)) == []
        (rank,) = json.loads(offsim("predict", "--plan", path, "--machine", "ideal", "--json", check=0).stdout)["ranks"]
        peaks.append(rank["allocated_peak_bytes"])
    assert peaks[0] - peaks[1] == 8388608  # the first layer's query


def test_a_fix_is_a_few_lines():
    """The two plans differ in a wait, a mark or a buffer, and in what is numbered after it."""
    for name in PLANS:
        bug, fix = ([re.sub(r"[%e]\d+", "", line) for line in (FOLDER / (name + end)).read_text().splitlines()
                     if not line.startswith("#")] for end in (".plan", ".fixed.plan"))
        assert bug != fix and abs(len(bug) - len(fix)) <= 3, name


@pytest.mark.parametrize("name", SCENARIOS)
def test_predict_refuses_it_when_asked(offsim, name):
    path = FOLDER / f"{name}.yaml"
    done = offsim("predict", "--check", path)
    (line,) = [line for line in done.stderr.splitlines() if "note: " not in line]
    assert done.status == 1 and done.stdout == ""
    assert re.search(r"warmup, rank \d", line) and "offsim check reports all findings" in line
    offsim("predict", "--check", "--set", "mode=fixed", path, check=0)
