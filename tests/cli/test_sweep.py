"""offsim sweep: rows are those of predict with any number of threads, also after it was killed."""

import csv
import fcntl
import io
import itertools
import json
import random
import re
import signal
import subprocess
import time

import pytest

from conftest import documented_json_keys, errors_of, one_error

SMALL = "docs/examples/one-layer.yaml"
LAYERS, MODULES = ["2", "3", "5", "7"], ["core_attn", "core_attn,attn_proj"]
AXES = ["--over", "num_layers=" + "|".join(LAYERS), "--over", "offload_modules=" + "|".join(MODULES)]


def lines_of(path):
    """Of the file, in an order that does not depend on which prediction ended first."""
    return sorted(path.read_text().splitlines())


@pytest.fixture(scope="module")
def undisturbed(offsim, tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "rows.jsonl"
    table = offsim("sweep", SMALL, *AXES, "-o", path, check=0).stdout
    return table, lines_of(path)


def test_rows_are_predictions(offsim, undisturbed):
    rows = [json.loads(line) for line in undisturbed[1]]
    found = {tuple(row["set"].items()): row for row in rows}
    assert len(found) == len(rows) == len(LAYERS) * len(MODULES)
    for layers, modules in itertools.product(LAYERS, MODULES):
        row = found[("num_layers", layers), ("offload_modules", modules)]
        one = json.loads(offsim("predict", SMALL, "--json", "--set", f"num_layers={layers}",
                                "--set", f"offload_modules={modules}", check=0).stdout)
        ranks = one["result"]["ranks"]
        assert row["verdict"] == ("fits" if one["fits"] else "does_not_fit")
        assert row["step_time_s"] == one["result"]["step_time_s"]
        assert row["step_time_without_offload_s"] == one["baseline"]["step_time_s"]
        assert all(row[key] == one[key] for key in ("tokens_per_s_per_gpu", "mfu"))
        for key in ("static_bytes", "allocated_peak_bytes", "reserved_peak_bytes"):
            assert row[key] == max(rank[key] for rank in ranks)
        assert row["d2h_bytes"] == sum(rank["d2h_bytes"] for rank in ranks)
        assert row["host_pinned_total_bytes"] == one["host_pinned_total_bytes"]
        assert row["saving_bytes"] == ranks[0]["simulated_saving_bytes"]
        assert row["missing_bytes"] == one["missing_bytes"]


SHARED = [("recompute_granularity", ["", "selective"]), ("offload_modules", ["core_attn", "core_attn,attn_proj"]),
          ("activation_offload_fraction", ["1", "0.5"]), ("expandable_segments", ["false", "true"])]


@pytest.mark.parametrize("memory_mib", [81920, 3500, 3300])  # enough; some requests are refused at first; too little for some
def test_neighbours_share_plans(offsim, tmp_path, memory_mib):
    """A row is that of a sweep of the setting alone, even after earlier settings have left plans and times."""
    base = ["sweep", "docs/examples/two-stages.yaml", "--machine", "H100-SXM", "--set", "fine_grained_activation_offloading=true",
            "--machine-set", f"gpu.memory_bytes={memory_mib << 20}", "--threads", "1"]
    over = [part for key, values in SHARED for part in ("--over", f"{key}={'|'.join(values)}")]
    offsim(*base, *over, "-o", tmp_path / "all.jsonl", check=0)
    alone = set()
    for i, values in enumerate(itertools.product(*(values for _, values in SHARED))):
        over = [part for (key, _), value in zip(SHARED, values) for part in ("--over", f"{key}={value}")]
        offsim(*base, *over, "-o", tmp_path / f"{i}.jsonl", check=0)
        alone.update(lines_of(tmp_path / f"{i}.jsonl"))
    assert set(lines_of(tmp_path / "all.jsonl")) == alone and len(alone) == 16


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_an_unknown_mfu_is_read_back(offsim, tmp_path, name):
    """Of frozen weights none is known; the second sweep has all rows from the file."""
    arguments = ["sweep", "docs/examples/hf-layers.yaml", "--set", "fused_projections=false", "--over", "lora.adapter=|lora",
                 "-o", tmp_path / name]
    table = offsim(*arguments, check=0).stdout
    assert sorted(line.split()[3] == "-" for line in table.splitlines() if re.match(r"[12]  ", line)) == [False, True]
    written = lines_of(tmp_path / name)
    assert offsim(*arguments, check=0).stdout == table and lines_of(tmp_path / name) == written


def test_keys_are_documented(undisturbed):
    assert set(json.loads(undisturbed[1][0])) == set(documented_json_keys("## A row of a sweep"))


@pytest.mark.parametrize("threads", [1, 7])
def test_any_number_of_threads(offsim, undisturbed, tmp_path, threads):
    path = tmp_path / "rows.jsonl"
    table = offsim("sweep", SMALL, *AXES, "--threads", threads, "-o", path, check=0).stdout
    assert (table, lines_of(path)) == undisturbed
    assert offsim("sweep", SMALL, *AXES, "--threads", threads, check=0).stdout == undisturbed[0]


def test_the_fastest_that_fit_are_first(offsim, undisturbed):
    rows = [json.loads(line) for line in undisturbed[1]]
    fastest = sorted((row for row in rows if row["verdict"] == "fits"), key=lambda row: row["step_time_s"])
    table = offsim("sweep", SMALL, *AXES, "--best", 3, check=0).stdout
    assert "the 3 fastest that fit" in table
    sets = [" ".join(f"--set {key}={value}" for key, value in row["set"].items()) for row in fastest[:3]]
    assert [line.split(None, 1)[1] for line in table.splitlines()[-3:]] == sets


def test_killed_twenty_times(offsim, root, tmp_path):
    """300 settings, each killed run's file continued: nothing is lost, nothing is there twice."""
    axes = ["--over", "num_layers=" + "|".join(map(str, range(2, 62))), "--over", "seq_length=512|1024|2048|4096|8192"]
    whole, path, draw = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl", random.Random(5)
    table = offsim("sweep", SMALL, *axes, "-o", whole, check=0).stdout
    for _ in range(20):
        running = subprocess.Popen([offsim.path, "sweep", SMALL, *axes, "--threads", "2", "-o", path],
                                   cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        before = path.stat().st_size if path.exists() else 0
        grown = before + draw.randrange(1, 9000)
        while running.poll() is None and (not path.exists() or path.stat().st_size < grown):
            time.sleep(0.001)
        running.send_signal(signal.SIGKILL)
        message = running.communicate()[1]
        assert running.returncode in (0, -signal.SIGKILL), message
        with open(path, "a+", encoding="utf-8") as torn:  # as if the kill had come within a write
            torn.write('{"sweep":"0123')
    assert offsim("sweep", SMALL, *axes, "-o", path, check=0).stdout == table
    assert lines_of(path) == lines_of(whole)


def test_a_file_is_extended(offsim, undisturbed, tmp_path):
    path = tmp_path / "rows.jsonl"
    offsim("sweep", SMALL, "--over", "num_layers=2|3", *AXES[2:], "-o", path, check=0)
    table = offsim("sweep", SMALL, *AXES, "-o", path, check=0).stdout
    assert (table, lines_of(path)) == undisturbed


def test_csv_has_the_same(offsim, undisturbed, tmp_path):
    path = tmp_path / "rows.csv"
    table = offsim("sweep", SMALL, *AXES, "-o", path, check=0).stdout
    assert table == undisturbed[0]
    rows = {row["set"]: row for row in csv.DictReader(io.StringIO(path.read_text()))}
    for line in undisturbed[1]:
        expected = json.loads(line, parse_float=str, parse_int=str)
        sets = " ".join(f"{key}={value}" for key, value in expected.pop("set").items())
        assert rows[sets] == {"set": sets} | {key: value or "" for key, value in expected.items()}
    assert offsim("sweep", SMALL, *AXES, "-o", path, check=0).stdout == table
    assert len(path.read_text().splitlines()) == len(rows) + 1


def test_a_list_sets_several_keys(offsim, tmp_path):
    settings, path = tmp_path / "list.txt", tmp_path / "rows.jsonl"
    settings.write_text("num_layers=2 seq_length=1024  # a comment\n\nnum_layers=3\nnum_layers=3\n")
    table = offsim("sweep", SMALL, "--list", settings, "--over", "offload_modules=core_attn|core_attn,attn_proj",
                   "-o", path, check=0).stdout
    rows = [json.loads(line)["set"] for line in lines_of(path)]
    assert len(rows) == 4  # what is listed twice is predicted once
    assert {"num_layers": "2", "seq_length": "1024", "offload_modules": "core_attn"} in rows
    assert table.startswith("4 settings: 4 fit")


def test_a_refused_setting_has_its_reason(offsim, tmp_path):
    path = tmp_path / "rows.jsonl"
    offsim("sweep", SMALL, "--over", "num_attention_heads=7|8", "-o", path, check=0)
    refused = [row for row in map(json.loads, lines_of(path)) if row["verdict"] == "refused"]
    assert [row["set"] for row in refused] == [{"num_attention_heads": "7"}]
    assert "divisible" in refused[0]["reason"] or "multiple" in refused[0]["reason"]
    assert refused[0]["step_time_s"] is None


@pytest.mark.parametrize("arguments, message", [
    ([], "nothing is varied"),
    (["--over", "num_layer=2|3"], 'there is no key "num_layer"; did you mean num_layers?'),
    (["--over", "num_layers"], "expected KEY=VALUE|VALUE"),
    (["--over", "num_layers=2|2"], 'num_layers has the value "2" twice'),
    (["--over", "num_layers=2", "--over", "model.num_layers=3"], "is already varied"),
    (["--over", "num_layers=2", "-o", "/dev/null"], "is no file that can be continued"),
])
def test_wrong_arguments(offsim, arguments, message):
    done = offsim("sweep", SMALL, *arguments)
    assert message in one_error(done, 2)


def test_all_errors_of_a_list(offsim, tmp_path):
    settings = tmp_path / "list.txt"
    settings.write_text("num_layers=2\nnum_layers=2 seq_lengt=4\n  nonsense\n")
    errors = errors_of(offsim("sweep", SMALL, "--list", settings), 2)
    assert [line.split(" error: ")[0] for line in errors] == [
        f"{settings}:2:14:", f"{settings}:3:3:"]


def test_files_of_others_are_left_alone(offsim, tmp_path):
    path = tmp_path / "rows.jsonl"
    offsim("sweep", SMALL, "--over", "num_layers=2", "-o", path, check=0)
    before = path.read_bytes()
    done = offsim("sweep", SMALL, "--set", "seq_length=1024", "--over", "num_layers=2", "-o", path)
    assert "of a sweep of other settings" in one_error(done, 2)
    done = offsim("sweep", SMALL, "--machine", "A100-SXM-PCIe4", "--over", "num_layers=2", "-o", path)
    assert done.status == 2 and path.read_bytes() == before
    path.write_text("# notes\n")
    done = offsim("sweep", SMALL, "--over", "num_layers=2", "-o", path)
    assert "this is no line of a sweep" in one_error(done, 2)
    assert path.read_text() == "# notes\n"


def test_one_sweep_writes_a_file_at_a_time(offsim, tmp_path):
    path = tmp_path / "rows.jsonl"
    with open(path, "w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = offsim("sweep", SMALL, "--over", "num_layers=2", "-o", path)
    assert "another sweep is writing it" in one_error(done, 2)
