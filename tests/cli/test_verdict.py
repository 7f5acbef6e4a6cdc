"""What offsim predict says of a run that does not fit: how much is missing and why, and which single settings make
it fit. Each suggestion is compared with the run of its settings."""

import functools
import json
import os
import re
import subprocess

import pytest

from conftest import ROOT, TIMEOUT_S, documented_json_keys, one_error, sets

SMALL = "tests/data/small.yaml"
LLAMA = ["--megatron-args", "docs/examples/llama3-8b.sh", "--world-size", "64", "--machine", "H100-SXM"]
LONG = sets("seq_length=65536", "max_position_embeddings=65536")
FIXED = sets("offload.mode=fixed")  # as released, some settings stop, and others say of each suggestion that it is not safe
ALLOCATION = [SMALL, *FIXED, *sets("num_layers=56", "hidden_size=8192")]
FRAGMENTATION = [*LLAMA, *LONG, *FIXED]
LONGER = [*LLAMA, *FIXED, *sets("seq_length=73728", "max_position_embeddings=73728")]
FITS = [SMALL, *FIXED]
HUGGING_FACE = ["docs/examples/hf-16-layers.yaml", *sets("micro_batch_size=6")]
NOTHING_HELPS = [SMALL, *FIXED, *sets("num_layers=40", "hidden_size=32768", "num_attention_heads=256")]


@pytest.fixture(scope="module")
def predict(offsim):
    """Several tests look at the same prediction, which is made once."""
    @functools.cache
    def run(*arguments):
        return json.loads(offsim("predict", *arguments, "--json", check=0).stdout)
    return run


def with_memory(machine, more_bytes, folder):
    """A machine file with that much more memory on the device."""
    text = (ROOT / f"sim/machine/presets/{machine}.yaml").read_text()
    path = folder / f"{machine}-{more_bytes}.yaml"
    path.write_text(re.sub(r"(?m)^( *memory_bytes: *)(\d+)", lambda m: f"{m[1]}{int(m[2]) + more_bytes}", text, count=1))
    return path


# ---- what is missing ----

def test_missing_by_allocation_is_what_is_allocated_beyond_the_capacity(predict):
    found = predict(*ALLOCATION)
    peaks = [rank["allocated_peak_bytes"] for rank in found["result"]["ranks"]]
    assert not found["fits"] and found["missing_cause"] == "allocation" and found["margin_bytes"] == 0
    assert found["missing_bytes"] == max(peaks) - found["capacity_bytes"] > 0
    assert found["missing_rank"] == peaks.index(max(peaks))


def test_a_run_that_allocates_too_much_is_timed_with_enough_memory(predict):
    """Another rank has to wait for memory, in a step that never happens."""
    with_enough = predict("docs/examples/deepseek-v3-proxy-h100.yaml")
    found = predict("docs/examples/deepseek-v3-proxy-h100.yaml", "--machine-set", f"gpu.memory_bytes={38 << 30}")
    ranks = found["result"]["ranks"]
    assert found["missing_cause"] == "allocation" and any(rank["fits"] and rank["back_pressure"] > 0 for rank in ranks)
    assert found["result"]["step_time_s"] == with_enough["result"]["step_time_s"]


def test_missing_by_fragmentation_is_enough(predict, tmp_path):
    """Nothing is allocated beyond the capacity, and with as much more memory it fits."""
    found = predict(*FRAGMENTATION)
    rank = found["result"]["ranks"][found["missing_rank"]]
    assert found["missing_cause"] == "fragmentation" and not rank["fits"]
    assert rank["allocated_peak_bytes"] <= found["capacity_bytes"] and found["missing_bytes"] > 0
    more = with_memory("H100-SXM", found["missing_bytes"], tmp_path)
    assert predict(*FRAGMENTATION, "--machine", more)["fits"]


@pytest.mark.parametrize("scenario", [SMALL, "docs/examples/pr1752.yaml", "docs/examples/hf-16-layers.yaml",
                                      "docs/examples/hf-layers.yaml", "docs/examples/te-layers.yaml"])
def test_between_what_is_allocated_and_what_is_reserved_it_is_fragmentation(predict, tmp_path, scenario):
    """With what is allocated and a part of what is reserved beyond it: short by what is said."""
    def with_gpu(more_bytes):
        return predict(scenario, "--machine", with_memory("H100-SXM", more_bytes, tmp_path), "--brief")
    large = with_gpu(400 << 30)
    allocated, reserved = (max(rank[key] for rank in large["result"]["ranks"])
                           for key in ("allocated_peak_bytes", "reserved_peak_bytes"))
    more = (400 << 30) + allocated + (reserved - allocated) // 8 - large["capacity_bytes"]
    found = with_gpu(more)
    assert large["fits"] and not found["fits"] and found["missing_cause"] == "fragmentation"
    assert found["missing_bytes"] <= reserved - found["capacity_bytes"]
    assert with_gpu(more + found["missing_bytes"])["fits"]


def test_missing_on_the_host(offsim, predict, tmp_path):
    text = (ROOT / "sim/machine/presets/H100-SXM.yaml").read_text()
    host = text.index("\nhost:")
    path = tmp_path / "little.yaml"
    path.write_text(text[:host] + re.sub(r"memory_bytes: *\d+", "memory_bytes: 1073741824", text[host:], count=1))
    found = predict(*FITS, "--machine", path)
    assert found["missing_cause"] == "host" and found["missing_rank"] is None and not found["fits"]
    assert found["missing_bytes"] == found["host_pinned_total_bytes"] - 1073741824
    assert "DOES NOT FIT: the GPUs of the fullest host pin" in offsim("predict", *FITS, "--machine", path, check=0).stdout


def test_margin(predict):
    found = predict(*FITS)
    assert found["fits"] and found["missing_bytes"] == 0 and found["missing_cause"] is found["suggestions"] is None
    reserved = max(rank["reserved_peak_bytes"] for rank in found["result"]["ranks"])
    assert found["margin_bytes"] == found["capacity_bytes"] - reserved


@pytest.mark.parametrize("arguments, status", [(FITS, 0), (ALLOCATION, 1), (FRAGMENTATION, 1)])
def test_must_fit_changes_the_exit_status_alone(offsim, arguments, status):
    usual = offsim("predict", *arguments, "--brief", check=0)
    strict = offsim("predict", *arguments, "--brief", "--must-fit", check=status)
    assert (strict.stdout, strict.stderr) == (usual.stdout, usual.stderr)


# ---- suggestions ----

def assert_order(found):
    keys = [(not one["fits"], one["missing_bytes"], float(one["step_time_s"])) for one in found["suggestions"]]
    assert keys == sorted(keys)
    assert len({one["name"] for one in found["suggestions"]}) == len(keys)


@pytest.mark.parametrize("arguments", [ALLOCATION, FRAGMENTATION, HUGGING_FACE, [*FITS, "--suggest"]],
                         ids=["allocation", "fragmentation", "hugging-face", "asked"])
def test_a_suggestion_is_the_run_that_it_stands_for(predict, arguments):
    found = predict(*arguments)
    assert_order(found)
    assert any(one["fits"] for one in found["suggestions"])
    step_s = float(found["result"]["step_time_s"])
    for one in found["suggestions"]:
        assert set(one) == set(documented_json_keys("## A suggestion"))
        run = predict(*(word for word in arguments if word != "--suggest"), *sets(*one["set"]), "--brief")
        ranks = run["result"]["ranks"]
        assert (run["fits"], run["missing_bytes"]) == (one["fits"], one["missing_bytes"]), one["name"]
        assert run["result"]["step_time_s"] == one["step_time_s"], one["name"]
        assert max(rank["allocated_peak_bytes"] for rank in ranks) == one["allocated_peak_bytes"], one["name"]
        assert max(rank["reserved_peak_bytes"] for rank in ranks) == one["reserved_peak_bytes"], one["name"]
        assert one["cost"] == pytest.approx(float(one["step_time_s"]) / step_s - 1, abs=2e-6)


def test_the_known_ways_are_among_them(predict):
    fits = {one["name"]: one["fits"] for one in predict(*FRAGMENTATION)["suggestions"]}
    assert all(fits[name] for name in ("expandable segments", "full recompute (gradient checkpointing)", "TP 4",
                                       "recomputed mlp"))
    assert not fits["recomputed core_attn"], "flash attention has no scores to save"
    names = {one["name"] for one in predict(*HUGGING_FACE)["suggestions"] if one["fits"]}
    assert {"micro-batches of one sequence", "full recompute (gradient checkpointing)",
            "offload by hidden_states, full recompute"} <= names


def test_the_least_number_of_layers(predict):
    """One recomputed layer less does not fit."""
    one = next(one for one in predict(*LONGER)["suggestions"] if one["name"].startswith("full recompute, layers"))
    least = int(one["name"].rsplit(" ", 1)[1])
    assert f"recompute_num_layers={least}" in one["set"] and least > 1
    less = [word.replace(f"num_layers={least}", f"num_layers={least - 1}") for word in one["set"]]
    assert predict(*LONGER, *sets(*one["set"]))["fits"] and not predict(*LONGER, *sets(*less), "--brief")["fits"]


def test_the_nearest_if_none_fits(offsim, predict):
    found = predict(*NOTHING_HELPS)
    assert found["suggestions"] and not any(one["fits"] for one in found["suggestions"])
    assert_order(found)
    nearest = found["suggestions"][0]
    table = offsim("predict", *NOTHING_HELPS, check=0).stdout
    line = re.search(r'^none of (\d+) single settings fits; the nearest is "(.*)", which is missing ([\d.]+) GiB$', table, re.M)
    assert int(line[1]) >= len(found["suggestions"]) and line[2] == nearest["name"]  # those that bounds rule out count too
    assert float(line[3]) == pytest.approx(nearest["missing_bytes"] / 2**30, abs=0.001)


def test_of_a_run_that_fits_they_need_less(predict):
    found = predict(*FITS, "--suggest")
    reserved = max(rank["reserved_peak_bytes"] for rank in found["result"]["ranks"])
    assert found["suggestions"] and all(one["fits"] and one["reserved_peak_bytes"] < reserved
                                        for one in found["suggestions"])


def test_table_of_suggestions(offsim, predict):
    """The settings to paste are those of the JSON, in its order."""
    table = offsim("predict", *FRAGMENTATION, check=0).stdout
    assert "DOES NOT FIT by fragmentation: rank 0 allocates" in table
    fitting = [one for one in predict(*FRAGMENTATION)["suggestions"] if one["fits"]]
    assert f"\n{len(fitting)} single settings make it fit; GiB and s, " in table
    lines = [f"  {one['name']}:" + "".join(f" --set {word}" for word in one["set"]) for one in fitting]
    printed = [line for line in table.splitlines() if line in lines]
    assert printed == lines and re.search(r"^  TP 4: .*\n      --tensor-model-parallel-size 4$", table, re.M)


def test_a_search_that_takes_long_ends_early_and_says_so(predict):
    """The most promising settings are tried; the order is the same. Plain modules have the cheapest steps to predict."""
    long, short = (predict(*HUGGING_FACE, *sets(f"global_batch_size={6 * steps}")) for steps in (512, 1))
    tried, every = ({one["name"] for one in found["suggestions"]} for found in (long, short))
    assert long["suggestions_left_out"] > 0 == short["suggestions_left_out"]
    assert "full recompute (gradient checkpointing)" in tried < every


@pytest.mark.parametrize("arguments", [ALLOCATION, NOTHING_HELPS], ids=["some fit", "none fits"])
def test_bounds_leave_out_nothing_that_fits(predict, arguments):
    """With many micro-batches, what cannot fit is not simulated: what fits, and the nearest, are the same."""
    few, many = (predict(*arguments, "--suggest", *sets(f"global_batch_size={batch}"))["suggestions"] for batch in (32, 64))
    fitting, as_few = ({one["name"] for one in found if one["fits"]} for found in (many, few))
    assert fitting == as_few and len(many) < len(few)
    assert fitting or many[0]["name"] == few[0]["name"]


def test_progress_is_shown_on_a_terminal_alone(offsim):
    usual = offsim("predict", *HUGGING_FACE, check=0)
    ours, theirs = os.openpty()
    done = subprocess.run([offsim.path, "predict", *HUGGING_FACE], cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs,
                          text=True, timeout=TIMEOUT_S, check=True)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert done.stdout == usual.stdout and "\r" not in usual.stderr
    assert re.search(r"\r *0/\d+  expandable segments", shown)


# ---- the brief form ----

@pytest.mark.parametrize("arguments", [FITS, HUGGING_FACE])
def test_brief_is_a_part_of_the_whole(offsim, arguments):
    whole = offsim("predict", *arguments, check=0).stdout
    brief = offsim("predict", *arguments, "--brief", check=0).stdout
    memory = re.search(r"^Memory.*?\n\n", whole, re.M | re.S)[0]
    verdict = re.search(r"^step .*?(?=\n\n|\Z)", whole, re.M | re.S)[0].rstrip("\n") + "\n"
    assert brief == memory + verdict


@pytest.mark.parametrize("option", ["--brief", "--suggest", "--must-fit"])
def test_not_beside_a_comparison_or_a_plan(offsim, option):
    assert "--compare-systems" in one_error(offsim("predict", SMALL, "--compare-systems", option), status=2)
    plan = offsim("plan", SMALL, check=0).stdout
    assert "--plan" in one_error(offsim("predict", "--plan", "-", option, stdin=plan), status=2)


# ---- offload that moves nothing ----

@pytest.mark.parametrize("settings, idle", [
    (["offload_modules=core_attn,attn_proj"], {}),
    (["offload_modules=attn_norm,core_attn"], {"attn_norm": "no layer of this model has such a module"}),
    (["offload_modules=core_attn,expert_fc1"], {"expert_fc1": "no layer of this model has such a module"}),
    (["offload_modules=core_attn", "mode=fixed", "activation_offload_fraction=0"], {"core_attn": "activation_offload_fraction is 0"}),
    (["offload_modules=core_attn", "min_offloaded_tensor_size=8388609"],
     {"core_attn": "its largest tensor has 8388608 elements, and min_offloaded_tensor_size is 8388609"}),
    (["offload_modules=core_attn", "min_offloaded_tensor_size=8388608"], {}),
    (["offload_modules=core_attn", "num_layers=1", "pipeline_model_parallel_size=1"],
     {"core_attn": "each of its groups comes back first in backward"}),
])
def test_what_moves_nothing_is_named_with_its_reason(offsim, predict, settings, idle):
    found = predict(SMALL, *sets(*settings))
    assert {one["name"]: one["reason"] for one in found["moves_nothing"]}.keys() == idle.keys()
    table = offsim("predict", SMALL, *sets(*settings), "--brief", check=0).stdout.replace("\n          ", " ")
    for one in found["moves_nothing"]:
        assert one["reason"].startswith(idle[one["name"]])
        assert f"\noffload   {one['name']} moves nothing: {one['reason']}\n" in table
    plan = offsim("plan", SMALL, *sets(*settings), check=0).stdout
    assert bool(re.search(r"^  d2h  ", plan, re.M)) == (len(idle) < len(settings[0].split(",")))


@pytest.mark.parametrize("scenario", ["hf-16-layers", "hf-layers", "hf-frozen", "paged-stash", "te-layers"])
def test_systems_that_move_something_or_mean_to_move_nothing(predict, scenario):
    assert predict(f"docs/examples/{scenario}.yaml")["moves_nothing"] == []


def test_a_system_that_moves_nothing(predict):
    """verl keeps the last of its groups of layers: of two layers, everything."""
    found = predict("docs/examples/hf-layers.yaml", *sets("num_layers=2", "system=verl", "fsdp=fsdp2",
                                                          "keep_gradients=false"))
    assert [one["name"] for one in found["moves_nothing"]] == ["verl"]


# ---- what a model alone leaves open ----

ALONE = ["--hf-config", "docs/examples/verl-qwen3-8b.json", *sets("seq_length=512", "num_layers=2")]


@pytest.mark.parametrize("verb", ["predict", "plan"])
def test_a_model_alone_says_what_is_assumed(offsim, verb):
    """The settings that it names, given, change nothing, and are named no more."""
    run = offsim(verb, *ALONE, check=0)
    line = next(line for line in run.stderr.splitlines() if "assumed" in line)
    assert line.startswith("docs/examples/verl-qwen3-8b.json: note: ") and "training in bf16 is predicted" in line
    assumed = line.rsplit(": ", 1)[1].split()
    assert {word.split("=")[0] for word in assumed} == {"implementation", "attention_backend", "optimizer",
                                                        "micro_batch_size"}
    again = offsim(verb, *ALONE, *sets(*assumed), check=0)
    assert again.stdout == run.stdout and "assumed" not in again.stderr
    assert "training in bf16 is predicted" in offsim(verb, *ALONE, *sets("bf16=true"), check=0).stderr


def test_what_a_file_beside_the_model_gives_is_not_assumed(offsim):
    run = offsim("predict", "--axolotl", "docs/examples/axolotl-full.yaml", "--hf-config",
                 "docs/examples/axolotl-full.json", "--brief", check=0)
    assert "assumed" not in run.stderr
