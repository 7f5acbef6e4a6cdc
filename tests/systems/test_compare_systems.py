"""offsim predict --compare-systems: one model and machine through every offload system that accepts them."""

import json
import os
import re
import struct
import subprocess

import pytest

import conftest

HF = "docs/examples/hf-16-layers.yaml"
TE = "docs/examples/te-layers.yaml"
DEEPSEEK = "docs/examples/deepseek-v3-proxy-h100.yaml"
TOP_KEYS = ["format_version", "machine", "capacity_bytes", "reference", "rows", "refused"]

# Measured on one H200, the fastest first: hf-16-layers.yaml's model under each setting.
# trl unregistered, 0.3 % from trl_sync, is not among them.
MEASURED_ORDER = ["none", "none, full recompute", "trl, full recompute", "trl", "trl_sync",
                  "trl_sync unregistered", "save_on_cpu"]


@pytest.fixture(scope="module")
def compare(offsim):
    def run(*arguments):
        return json.loads(offsim("predict", *arguments, "--compare-systems", "--json", check=0).stdout)
    return run


@pytest.fixture(scope="module")
def hf(compare):
    return compare(HF)


def named(found):
    return {row["name"]: row for row in found["rows"]}


def refusals(found):
    return {system: one["reason"] for one in found["refused"] for system in one["systems"].split(", ")}


# ---- JSON ----

@pytest.mark.parametrize("scenario", [HF, TE])
def test_json_has_the_documented_keys(compare, scenario):
    top, row = conftest.documented_json_keys("## A comparison", until="\nA row:\n"), conftest.documented_json_keys("A row:")
    found = compare(scenario)
    assert list(found) == top == TOP_KEYS
    for one in found["rows"]:
        assert set(one) == set(row)
    for one in found["refused"]:
        assert set(one) == {"systems", "reason"}


def test_every_system_has_a_row_or_a_reason(hf, root):
    table = (root / "sim/config/offload_systems.h").read_text()
    systems = set(re.findall(r"^  X\((\w+),", table, re.M))
    with_row = {row["system"] for row in hf["rows"]}
    assert with_row | set(refusals(hf)) == systems
    assert not with_row & set(refusals(hf))


def test_a_row_is_what_its_settings_predict(offsim, hf):
    for row in hf["rows"][:4]:
        sets = [word for one in row["set"] for word in ("--set", one)]
        alone = json.loads(offsim("predict", HF, *sets, "--json", check=0).stdout)
        ranks = alone["result"]["ranks"]
        assert alone["scenario"]["offload"]["system"] == row["system"]
        assert alone["result"]["step_time_s"] == row["step_time_s"]
        assert max(rank["allocated_peak_bytes"] for rank in ranks) == row["allocated_peak_bytes"]
        assert sum(rank["d2h_bytes"] for rank in ranks) == row["d2h_bytes"]
        assert alone["host_pinned_total_bytes"] == row["host_pinned_total_bytes"]


def test_savings_are_beside_the_reference(hf):
    reference = named(hf)[hf["reference"]]
    assert hf["reference"] == "none" and reference["saving_bytes"] == 0 and reference["overhead"] == 0
    for row in hf["rows"]:
        assert row["saving_bytes"] == reference["allocated_peak_bytes"] - row["allocated_peak_bytes"]
        overhead = row["step_time_s"] / reference["step_time_s"] - 1
        assert row["overhead"] == pytest.approx(overhead, abs=2e-6)


# ---- order ----

def test_rows_stand_in_the_measured_order(hf):
    place = {row["name"]: number for number, row in enumerate(hf["rows"])}
    assert sorted(MEASURED_ORDER, key=place.__getitem__) == MEASURED_ORDER


@pytest.mark.parametrize("machine", ["H200-SXM", "A100-SXM-PCIe4"])
def test_fitting_rows_come_first_and_the_front_is_pareto(compare, machine):
    # 24 layers: too much for a small GPU without offload.
    rows = compare(HF, "--machine", machine, "--set", "num_layers=24")["rows"]
    fits = [row["fits_device"] and row["fits_host"] for row in rows]
    assert fits == sorted(fits, reverse=True)
    fitting = [row for row, good in zip(rows, fits) if good]
    times = [row["step_time_s"] for row in fitting]
    assert times == sorted(times)
    for row in rows:
        better = [one for one in fitting if one["step_time_s"] <= row["step_time_s"]
                  and one["allocated_peak_bytes"] <= row["allocated_peak_bytes"]
                  and (one["step_time_s"], one["allocated_peak_bytes"])
                  != (row["step_time_s"], row["allocated_peak_bytes"])]
        assert row["on_front"] <= (row in fitting and not better)
    assert any(row["on_front"] for row in rows)


# ---- what is tried ----

def test_defaults_where_nothing_was_given(compare):
    found = compare(TE, "--set", "cpu_offloading_num_layers=0")
    assert "cpu_offloading_num_layers=5" in named(found)["te_v1"]["set"]
    assert "cpu_offloading_num_layers=4" in named(found)["te_v2"]["set"]
    assert "offload_modules=qkv_linear,core_attn,attn_proj" in named(found)["megatron"]["set"]


def test_what_was_given_stays(compare):
    found = compare(TE, "--set", "offload_modules=core_attn")
    assert named(found)["te_v2"]["set"] == ["offload.system=te_v2"]
    assert not [one for one in named(found)["megatron"]["set"] if one.startswith("offload_modules")]
    # A system of another kind does without the layers.
    assert "cpu_offloading_num_layers=0" in named(found)["megatron"]["set"]


def test_what_was_given_for_one_system_does_not_stop_the_others(compare):
    by_hand = ["--set", "offload.system=te_v2", "--set", "cpu_offloading_manual_synchronization=true",
               "--set", "cpu_offloading_layers=0,1"]
    found = named(compare(TE, *by_hand))
    assert found["te_v2"]["set"] == ["offload.system=te_v2"]
    assert {"none", "te_v1", "megatron"} <= set(found)
    found = named(compare(HF, "--set", "recompute_granularity=full", "--set", "recompute_method=uniform",
                          "--set", "recompute_num_layers=1", "--set", "recompute.use_reentrant=true"))
    assert {"none", "none, full recompute", "hidden_states, full recompute",
            "hidden_states_reentrant, full recompute"} <= set(found)


def test_reasons(compare):
    reasons = refusals(compare(DEEPSEEK))
    assert reasons["te_v1"] == reasons["te_v2"]
    assert "pipeline_model_parallel_size 1; it is 4" in reasons["te_v2"]
    assert "models of Hugging Face" in reasons["trl"]
    assert "virtual pipeline stages" in reasons["megatron_pr1752"]
    assert "moves nothing" in refusals(compare("docs/examples/one-layer.yaml"))["megatron"]


def test_the_users_own_error_is_one_message(offsim):
    run = offsim("predict", TE, "--compare-systems", "--set", "cpu_offloading_num_layers=6")
    assert run.status == 2 and "must be less than num_layers" in run.stderr


# ---- table and plot ----

def test_table(offsim, hf):
    table = offsim("predict", HF, "--compare-systems", check=0).stdout.splitlines()
    names = [line[:line.index("  ")].strip() for line in table
             if re.search(r" (?:yes|NO|NOT THE HOST)$", line)]
    assert names == [row["name"] for row in hf["rows"]]
    first = hf["rows"][0]
    assert f"fastest   {first['name']}: " + " ".join(f"--set {one}" for one in first["set"]) in table
    for row in hf["rows"]:
        one = json.loads(offsim("predict", HF, "--json", *(word for text in row["set"] for word in ("--set", text)), check=0).stdout)
        assert all(one[key] == row[key] for key in ("tokens_per_s_per_gpu", "mfu"))


def test_notes_are_told_once(offsim):
    run = offsim("predict", HF, "--compare-systems", check=0)
    assert "\r" not in run.stderr
    assert run.stderr.count("note: ") <= 1


def read_all(screen):
    """What was written to a terminal whose other end is closed: one read may bring a part."""
    shown = b""
    try:
        while piece := os.read(screen, 1 << 16):
            shown += piece
    except OSError:  # the end, on Linux
        pass
    return shown.decode()


def test_progress_is_for_terminals(offsim):
    try:
        screen, terminal = os.openpty()
    except OSError as why:
        pytest.skip(f"no pseudo-terminal can be opened here: {why}")
    done = subprocess.run([offsim.path, "predict", TE, "--compare-systems"], cwd=conftest.ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=terminal, check=True)
    os.close(terminal)
    shown = read_all(screen)
    os.close(screen)
    assert "te_v2" in shown and shown.endswith("\r")
    assert "\r" not in done.stdout


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_plot_is_drawn_and_the_same_again(offsim, tmp_path, hf, kind):
    first, second = tmp_path / f"first.{kind}", tmp_path / f"second.{kind}"
    for path in (first, second):
        offsim("predict", HF, "--compare-systems", "--plot", path, check=0)
    assert first.read_bytes() == second.read_bytes()
    if kind == "png":
        width, height = struct.unpack(">II", first.read_bytes()[16:24])
        assert width > height > 0


@pytest.mark.parametrize("option", [["--trace", "t.json"], ["--plot-rank", "1"], ["--measured-peak", "1"]])
def test_what_shows_one_run_is_refused(offsim, option):
    run = offsim("predict", TE, "--compare-systems", *option)
    assert run.status == 2
    assert run.stderr == "--compare-systems: error: of the outputs only --json and --plot work with it\n"
