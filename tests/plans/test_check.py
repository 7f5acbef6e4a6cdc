"""`offsim check`: the findings of docs/reference/verifier.md, and what the shipped examples are found to be."""

import json
import re

import pytest

from conftest import ROOT, documented_json_keys, sets

PAGE = (ROOT / "docs/reference/verifier.md").read_text()
PLANS = dict(re.findall(r"### (\w+)\n.*?```plan\n(.*?)```", PAGE, re.S))


def check(offsim, *arguments, stdin=""):
    done = offsim("check", "--json", *arguments, stdin=stdin)
    assert done.status in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["safe"] == (done.status == 0)
    return found


def kinds_in_source():
    rows = (ROOT / "sim/verify/verify.h").read_text()
    return dict(re.findall(r'X\(\w+, +"(\w+)", +(\w+),', rows))


def test_every_finding_is_on_the_page():
    assert set(PLANS) == set(kinds_in_source())


@pytest.mark.parametrize("kind", PLANS)
def test_its_plan_has_the_finding_and_no_other_error(offsim, kind):
    found = check(offsim, "--plan", "-", stdin=PLANS[kind])
    severities = kinds_in_source()
    kinds = {finding["kind"] for finding in found["findings"]}
    assert kind in kinds
    errors = {k for k in kinds if severities[k] == "ERROR"}
    assert errors <= {kind}
    assert found["safe"] == (severities[kind] != "ERROR")


@pytest.mark.parametrize("kind", PLANS)
def test_json_has_the_documented_keys(offsim, kind):
    found = check(offsim, "--plan", "-", stdin=PLANS[kind])
    assert list(found) == documented_json_keys("## Check", until="\nA finding:\n")
    for finding in found["findings"]:
        assert list(finding) == documented_json_keys("A finding:")
        assert all(set(op) == {"op", "text"} for op in finding["ops"])
        assert finding["buffer"] is None or set(finding["buffer"]) == {"number", "name", "bytes"}
        assert finding["missing_edge"] is None or (
            set(finding["missing_edge"]) == {"stream", "before_op", "waits_for", "after_op"})


def test_a_finding_names_ops_and_the_missing_edge(offsim):
    found = check(offsim, "--plan", "-", stdin=PLANS["read_before_write"])
    (finding,) = [f for f in found["findings"] if f["severity"] == "error"]
    assert [op["text"].split()[0] for op in finding["ops"]] == ["d2h", "h2d"]
    assert finding["ranks"] == [0]
    assert finding["buffer"]["name"] == "query"
    assert finding["missing_edge"] == {"stream": "h2d", "before_op": finding["ops"][1]["op"],
                                       "waits_for": "d2h", "after_op": finding["ops"][0]["op"]}


@pytest.mark.parametrize("example", ["one-layer", "te-layers"])
def test_examples_are_safe(offsim, example):
    assert check(offsim, f"docs/examples/{example}.yaml", *sets("offload.mode=fixed"))["safe"]


EXPERTS = ["num_experts=8", "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_router_topk=2"]
OVERLAP = [*EXPERTS, "num_layers=4", "system=none", "expert_model_parallel_size=2", "num_virtual_stages_per_pipeline_rank=2",
           "moe_token_dispatcher_type=alltoall", "overlap_moe_expert_parallel_comm=true"]


@pytest.mark.parametrize("scenario, settings", [
    # What a pair of chunks receives belongs to the pool of the exchange's stream.
    ("tests/data/small.yaml", OVERLAP),
    # Backward reads copies of the expert numbers that DeepEP received, not those.
    ("tests/data/small.yaml", [*OVERLAP, "moe_token_dispatcher_type=flex", "moe_flex_dispatcher_backend=deepep"]),
    # The experts' input is announced when it is quantised.
    ("docs/examples/te-layers.yaml", [*EXPERTS, "container=pytorch:26.04-py3", "fp8_format=e4m3", "fp8_recipe=blockwise",
                                      "machine.name=H100-SXM"]),
])
def test_combinations_are_safe(offsim, scenario, settings):
    assert check(offsim, scenario, *sets("offload.mode=fixed", *settings))["safe"]


@pytest.mark.parametrize("strategy", ["no_shard", "optim", "optim_grads", "optim_grads_params"])
def test_fsdp_gradients_of_two_streams_are_apart(strategy, offsim):
    """The delayed product of a prediction layer and the last norm, which runs with the token exchange, add to gradients of
    one buffer at the same time."""
    overlap = ["system=none", *EXPERTS, "num_layers=4", "mtp_num_layers=1", "expert_model_parallel_size=2",
               "moe_token_dispatcher_type=alltoall", "overlap_moe_expert_parallel_comm=true", "delay_wgrad_compute=true",
               "use_megatron_fsdp=true", f"data_parallel_sharding_strategy={strategy}", "pipeline_model_parallel_size=1",
               "offload.mode=fixed", "fine_grained_activation_offloading=false"]
    assert check(offsim, "tests/data/small.yaml", *sets(*overlap))["safe"]


def test_a_wrong_plan_is_refused(offsim):
    done = offsim("check", "--plan", "-", stdin="offsim-plan 1\nranks 1\n\nrank 0\n  free compute %0\n")
    assert done.status == 2 and done.stderr.count("\n") == 1


def test_a_plan_given_as_text_is_predicted_if_it_is_safe(offsim):
    """As `predict` reports for the configuration that the plan was compiled from."""
    example = ("docs/examples/te-layers.yaml", "--set", "offload.system=te_v1")
    text = offsim("plan", *example, check=0).stdout
    found = json.loads(offsim("predict", "--plan", "-", "--machine", "ideal", "--json", stdin=text, check=0).stdout)
    whole = json.loads(offsim("predict", *example, "--json", check=0).stdout)["result"]
    assert found["step_time_s"] == whole["step_time_s"]
    for key in ("requested_peak_bytes", "exposed_d2h_s", "exposed_h2d_s"):
        assert found["ranks"][0][key] == whole["ranks"][0][key]
    assert list(found) + list(found["ranks"][0]) == documented_json_keys("## A plan")


def test_an_unsafe_plan_is_not_predicted(offsim):
    done = offsim("predict", "--plan", "-", stdin=PLANS["read_before_write"])
    assert done.status == 1 and done.stdout == "" and "read_before_write" in done.stderr
    assert done.stderr.count("\n") == 1
    beside = offsim("predict", "--plan", "-", "docs/examples/one-layer.yaml", stdin=PLANS["deadlock"])
    assert beside.status == 2 and beside.stderr.count("\n") == 1


def test_sarif(offsim, tmp_path):
    """The findings of --json, each with its line; a rule for each kind."""
    path, bug = tmp_path / "findings.sarif", "tests/known_bugs/torchtune-1867.plan"
    found = check(offsim, "--sarif", path, "--plan", bug)["findings"]
    log = json.loads(path.read_text())
    (run,) = log["runs"]
    levels = {"ERROR": "error", "WARNING": "warning", "ADVICE": "note"}
    rules = {rule["id"]: rule["defaultConfiguration"]["level"] for rule in run["tool"]["driver"]["rules"]}
    assert log["version"] == "2.1.0"
    assert rules == {kind: levels[severity] for kind, severity in kinds_in_source().items()}
    lines = [[place["line"] for place in finding["places"]] for finding in found]
    said = [[place["physicalLocation"]["region"]["startLine"]
             for place in result["relatedLocations"] + result["locations"]] for result in run["results"]]
    assert said == lines
    for result in run["results"]:
        assert result["level"] == rules[result["ruleId"]] and list(rules)[result["ruleIndex"]] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == bug


def test_sarif_of_a_scenario(offsim, tmp_path):
    path, bug = tmp_path / "findings.sarif", "tests/known_bugs/megatron-inline-reload.yaml"
    counts = {}
    for options in ([], ["--advice"], ["--set", "mode=fixed"]):
        offsim("check", *options, "--sarif", path, bug)
        results = json.loads(path.read_text())["runs"][0]["results"]
        counts[" ".join(options)] = len(results)
        places = {place["uri"] for result in results for place in
                  [result["locations"][0]["physicalLocation"]["artifactLocation"]]}
        assert places <= {bug}
    assert counts["--advice"] > counts[""] > counts["--set mode=fixed"] == 0
