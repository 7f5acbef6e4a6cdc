"""`offsim check`: the findings of docs/reference/verifier.md, and what the shipped examples are found to be."""

import json
import re
import urllib.parse

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
    # Flash attention announces the query; keys and values that the ring joins, and its output, when they are there.
    ("tests/data/small.yaml", ["fine_grained_activation_offloading=false", "offload_modules=", "system=te_v2",
                               "cpu_offloading_num_layers=1", "context_parallel_size=2", "pipeline_model_parallel_size=1",
                               "attention_backend=flash", "container=pytorch:26.04-py3", "seq_length=512"]),
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


@pytest.mark.parametrize("wrong, lines", [("d2h download %1 > %2", ["10", "11"]), ("d2h download %1{i99} -> %2", ["10", "11"]),
                                          ("kernel compute what %0 -> %1", ["10", "11"]), ("record compute %1", ["10"])])
def test_each_line_of_a_text_has_its_own_error(wrong, lines, offsim):
    """A record that could not be read may be the one that a later wait names."""
    plan = NAMED.replace("  d2h        download %1 -> %2", f"  {wrong}\n  wait compute e7")
    done = offsim("check", "--plan", "-", stdin=plan)
    assert done.status == 2 and re.findall(r"^-:(\d+):\d+: error: ", done.stderr, re.M) == lines


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


@pytest.mark.parametrize("kind", PLANS)
def test_its_plan_is_drawn(kind, offsim_san, tmp_path):
    """An error is drawn if it is about a tensor; a plan without errors if something leaves."""
    path = tmp_path / "race.svg"
    done = offsim_san("check", "--plan", "-", "--plot", path, stdin=PLANS[kind])
    error = kinds_in_source()[kind] == "ERROR"
    about_none = ("no error is about one tensor" if error else "nothing to draw") in done.stderr
    assert path.exists() != about_none and done.status == (2 if about_none else int(error))
    assert not about_none or not error or kind in ("deadlock", "wait_before_record", "missing_collective",
                                                   "mismatched_collectives", "mismatched_messages")


def test_another_error_is_drawn(offsim, tmp_path):
    plan = "tests/known_bugs/torchtitan-2581.plan"
    paths = tmp_path / "first.svg", tmp_path / "second.svg"
    for path, op in zip(paths, ("4", "10")):
        offsim("check", "--plan", plan, "--plot", path, "--plot-op", op)
    assert paths[0].exists() and not paths[1].exists()
    assert "no error has op 10 as its second op" in offsim("check", "--plan", plan, "--plot", paths[1], "--plot-op", "10").stderr


# Of the schema of SARIF 2.1.0 (docs.oasis-open.org/sarif/sarif/v2.1.0), the objects that offsim writes: what each requires,
# and what its properties are. No object may have others.
SARIF_WORDS = {"level": {"none", "note", "warning", "error"}, "version": {"2.1.0"}}
SARIF = {
    "log": ({"version", "runs"}, {"$schema": str, "version": str, "runs": ["run"]}),
    "run": ({"tool"}, {"tool": "tool", "results": ["result"]}),
    "tool": ({"driver"}, {"driver": "driver"}),
    "driver": ({"name"}, {"name": str, "version": str, "informationUri": str, "rules": ["rule"]}),
    "rule": ({"id"}, {"id": str, "shortDescription": "text", "defaultConfiguration": "configuration"}),
    "configuration": (set(), {"level": str}),
    "text": ({"text"}, {"text": str}),
    "result": ({"message"}, {"ruleId": str, "ruleIndex": int, "level": str, "message": "text", "locations": ["location"],
                             "relatedLocations": ["location"]}),
    "location": (set(), {"physicalLocation": "place", "message": "text"}),
    "place": ({"artifactLocation"}, {"artifactLocation": "artifact", "region": "region"}),
    "artifact": (set(), {"uri": str}),
    "region": ({"startLine"}, {"startLine": int}),
}


def follow_schema(kind, value):
    required, properties = SARIF[kind]
    assert isinstance(value, dict) and required <= set(value) <= set(properties), (kind, value)
    for name, member in value.items():
        wanted = properties[name]
        if isinstance(wanted, list):
            assert isinstance(member, list)
            for item in member:
                follow_schema(wanted[0], item)
        elif isinstance(wanted, str):
            follow_schema(wanted, member)
        else:
            assert type(member) is wanted, (kind, name, member)
            assert member in SARIF_WORDS.get(name, {member})
    if kind == "region":
        assert value["startLine"] >= 1
    if kind == "artifact":
        assert " " not in value["uri"]


@pytest.mark.parametrize("arguments", [
    ["--plan", "tests/known_bugs/torchtune-1867.plan"], ["--advice", "tests/known_bugs/megatron-inline-reload.yaml"],
    ["--set", "mode=fixed", "tests/known_bugs/megatron-inline-reload.yaml"],
    ["--plan", "tests/known_bugs/megatron-full-iteration-graph.plan"]])
def test_sarif_follows_its_schema(arguments, offsim, tmp_path):
    path = tmp_path / "findings.sarif"
    offsim("check", "--sarif", path, *arguments)
    log = json.loads(path.read_text())
    follow_schema("log", log)
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in log["runs"][0]["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_escapes_a_file_name(offsim, tmp_path):
    """A URI has no blanks, even if the file's name has."""
    plan, path = tmp_path / "my plan 50%.plan", tmp_path / "findings.sarif"
    plan.write_text((ROOT / "tests/known_bugs/torchtune-1867.plan").read_text())
    offsim("check", "--sarif", path, "--plan", plan)
    log = json.loads(path.read_text())
    follow_schema("log", log)
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert urllib.parse.unquote(uri) == str(plan)


def test_copies_that_take_too_long_are_refused(offsim, tmp_path):
    """One of 2 TiB at 1 MB/s takes 25 days, the second of two ends after the limit."""
    machine = tmp_path / "slow.yaml"
    text, changed = re.subn(r"(?m)^(link:\n  d2h_bytes_per_us:) \d+", r"\1 1",
                            (ROOT / "sim/machine/presets/ideal.yaml").read_text())
    assert changed == 1
    machine.write_text(text)
    for copies, status in ((1, 0), (2, 2)):
        plan = ("offsim-plan 1\nranks 1\n\nrank 0\n  resident compute %0 weight bf16[8,8] 2199023255552 bytes weight\n"
                "  resident host %1 copy bf16[8,8] 2199023255552 bytes pinned_host\n" + "  d2h compute %0 -> %1\n" * copies)
        done = offsim("predict", "--plan", "-", "--machine", machine, stdin=plan)
        assert done.status == status and ("the plan takes longer than 26 days" in done.stderr) == (status == 2)


# ---- streams that a text names -----------------------------------------------------------------------------------------

NAMED = """offsim-plan 1
ranks 1
streams upload download

rank 0
  resident   compute  %0 weight bf16[64] 128 bytes weight
  alloc      upload   %1 query bf16[64] 128 bytes saved
  kernel     compute  elementwise bf16 elements=64 256 bytes %0 -> %1
  host_alloc host     %2 query bf16[64] 128 bytes pinned_host
  d2h        download %1 -> %2
  free       upload   %1 after download
  host_free  host     %2
"""


def test_streams_may_be_named(offsim):
    assert offsim("plan", "--plan", "-", stdin=NAMED, check=0).stdout == NAMED
    found = check(offsim, "--plan", "-", stdin=NAMED)
    (race,) = [finding for finding in found["findings"] if finding["kind"] == "read_before_write"]
    assert race["missing_edge"] == {"stream": "download", "before_op": 3, "waits_for": "compute", "after_op": 1}
    assert [place["line"] for place in race["places"]] == [8, 10]


def test_findings_are_those_of_the_plain_names(offsim):
    """Of every plan on the page of the verifier, with other names for its streams."""
    for kind, text in PLANS.items():
        names = {"d2h": "out_1", "h2d": "in_1", "comm": "Exchange", "previous": "left", "next": "right", "a2a": "tokens"}
        renamed = re.sub(r"(?m)^(ranks .*)$", r"\1\nstreams " + " ".join(names.values()), text, count=1)
        for plain, own in names.items():
            renamed = re.sub(rf"(?m)^(  \S+ +){plain}\b", rf"\g<1>{own}", renamed)
            renamed = re.sub(rf"(?m)( after .*)\b{plain}\b", rf"\g<1>{own}", renamed)
        plain, own = (check(offsim, "--plan", "-", stdin=each)["findings"] for each in (text, renamed))
        assert [(f["kind"], [op["op"] for op in f["ops"]]) for f in plain] == [
            (f["kind"], [op["op"] for op in f["ops"]]) for f in own], kind
        for before, after in zip(plain, own):
            lines = [[place["line"] for place in f["places"]] for f in (before, after)]
            assert [line and line + 1 for line in lines[0]] == lines[1] and lines[1], kind
            assert all((place["op"] is None) == (place["line"] is None) for place in after["places"]), kind


@pytest.mark.parametrize("line, message", [
    ("streams", '"streams" is followed by names'),
    ("streams 1st", '"1st"; a stream\'s name begins with a letter and has at most 31 characters'),
    ("streams " + "x" * 32, f'"{"x" * 32}"; a stream\'s name begins with a letter and has at most 31 characters'),
    ("streams compute", 'there is a stream "compute" already'),
    ("streams a a", 'there is a stream "a" already'),
    ("streams host", 'there is a stream "host" already'),
    ("streams a b c d e f g h i", "too many streams; a plan has at most 8 with names of its own"),
])
def test_wrong_names_of_streams(line, message, offsim):
    done = offsim("check", "--plan", "-", stdin=NAMED.replace("streams upload download", line))
    assert done.status == 2 and done.stderr.count("\n") == 1 and re.match(r"-:3:\d+: error: ", done.stderr)
    assert message in done.stderr


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
