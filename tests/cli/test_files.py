"""Files that are standard input or output, and files that are no scenario."""

import gzip

import pytest

from conftest import one_error

LAYER = "docs/examples/one-layer.yaml"
TINY = "docs/examples/tiny-llama.yaml"

# ---- "-" ----

OUTPUTS = {
    "predict --record": ["predict", LAYER, "--record"],
    "predict --trace": ["predict", LAYER, "--trace"],
    "predict --html": ["predict", LAYER, "--html"],
    "tune --csv": ["tune", LAYER, "--csv"],
    "tune --html": ["tune", LAYER, "--html"],
    "sweep -o": ["sweep", LAYER, "--over", "num_layers=2", "-o"],
    "sweep --html": ["sweep", LAYER, "--over", "num_layers=2", "--html"],
    "check --sarif": ["check", LAYER, "--sarif"],
    "run --record": ["run", "--on", "ref", TINY, "--steps", "1", "--record"],
    "run --dump": ["run", "--on", "ref", TINY, "--steps", "1", "--dump"],
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_standard_output_in_place_of_the_report(offsim, tmp_path, output):
    written = offsim(*OUTPUTS[output], "-")
    offsim(*OUTPUTS[output], tmp_path / "file")
    assert written.stdout == (tmp_path / "file").read_text() != ""


@pytest.fixture(scope="module")
def trace(offsim):
    return offsim("predict", LAYER, "--trace", "-", check=0).stdout


def test_a_trace_from_standard_input(offsim, tmp_path, trace):
    path = tmp_path / "trace.json"
    path.write_text(trace)
    assert offsim("import", "-", stdin=trace, check=0).stdout == offsim("import", path, check=0).stdout
    assert offsim("import", path, "-o", "-", check=0).stdout == offsim("import", "-", "-o", "-", stdin=trace, check=0).stdout
    assert offsim("compare", LAYER, "-", stdin=trace, check=0).stdout == offsim("compare", LAYER, path, check=0).stdout
    junit = offsim("compare", LAYER, "-", "--same-copies", "--junit", "-", stdin=trace, check=0).stdout
    assert junit.startswith("<?xml") and "prediction" not in junit
    record = offsim("predict", LAYER, "--record", "-").stdout
    (tmp_path / "record").write_text(record)
    assert "compared" in offsim("compare", tmp_path / "record", "-", stdin=record, check=0).stdout


def test_a_program_has_standard_output(offsim):
    run = offsim("record", "-o", "-", "--", "true")
    assert run.status == 2 and "the record goes to a file" in run.stderr


# ---- files that are no scenario ----

def other_files(offsim, trace):
    return {
        "trace.json": (trace.encode(), "a profiler's trace"),
        "trace.json.gz": (gzip.compress(trace.encode()), "compressed"),
        "snapshot.pickle": (b"\x80\x04}.", "a pickle"),
        "profile.sqlite": (b"SQLite format 3\0more", "a database"),
        "run.sh": (b"torchrun pretrain_gpt.py --num-layers 2\n", "a script"),
        "launch": (b"#!/bin/bash\ntorchrun pretrain_gpt.py\n", "a script"),
        "x.plan": (b"# one\n" + offsim("plan", LAYER).stdout.encode(), "a plan"),
        "record": (offsim("predict", LAYER, "--record", "-").stdout.encode(), "a record of a run or a prediction"),
        "real": (offsim("import", "-", "-o", "-", stdin=trace).stdout.encode(), "a record of a real run"),
    }


def test_a_pipe_is_read_once(offsim):
    text = (offsim.path.parents[2] / LAYER).read_text()
    assert offsim("predict", "/dev/stdin", "--brief", stdin=text, check=0).stdout == offsim("predict", LAYER, "--brief").stdout


def test_one_message_says_what_reads_a_file(offsim, tmp_path, trace):
    for name, (content, what) in other_files(offsim, trace).items():
        path = tmp_path / name
        path.write_bytes(content)
        error = one_error(offsim("predict", path), 2)
        assert error.startswith(f"{path}: error: this is {what} and no scenario; "), error


# ---- a model's folder ----

def test_config_json_by_its_folder(offsim, root, tmp_path):
    text = (root / "tests/data/hf/llama-3-8b.json").read_text()
    (tmp_path / "config.json").write_text(text)
    options = ("--set", "seq_length=4096", "--print-scenario")
    by_folder, by_file = (offsim("predict", "--hf-config", path, *options, check=0).stdout
                          for path in (tmp_path, tmp_path / "config.json"))
    assert by_folder == by_file
    (tmp_path / "config.json").write_text(text.replace('"model_type": "llama"', '"model_type": "mamba2"'))
    assert one_error(offsim("predict", "--hf-config", tmp_path, *options), 2).startswith(f"{tmp_path}/config.json:")


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "none.json"])
def test_a_model_is_not_looked_up(offsim, name):
    message = one_error(offsim("predict", "--hf-config", name, "--set", "seq_length=4096"), 2)
    assert message.startswith(f"{name}: error: there is no such file; no model is looked up by its name")
