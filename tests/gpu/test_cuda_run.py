"""offsim run --on cuda with the CPU instead of a GPU: the bits, bytes and messages that GPUs give, too."""

import json

import pytest

from conftest import sets

LLAMA = "docs/examples/tiny-llama.yaml"
HF = "docs/examples/tiny-llama-hf.yaml"
FINE = ["nvte_cpu_offload_v1=false", "fine_grained_activation_offloading=true"]
HOST = ["--on", "cuda", "--gpus", 0]
PRINTS = ["loss_bits", "loss_fingerprint", "grads_fingerprint", "params_fingerprint"]
SETTINGS = {
    "none": (LLAMA, ["nvte_cpu_offload_v1=false"]),
    "layers": (LLAMA, []),
    "modules": (LLAMA, [*FINE, "offload_modules=core_attn,attn_proj"]),
    "recompute": (LLAMA, ["nvte_cpu_offload_v1=false", "recompute_granularity=full",
                          "recompute_method=uniform", "recompute_num_layers=1"]),
    "graphs": (LLAMA, ["nvte_cpu_offload_v1=false", "cuda_graph_impl=local"]),
    "torch": (HF, []),
    "trl": (HF, ["offload.system=trl"]),
    "disk": (HF, ["offload.system=axolotl_disk", "recompute_granularity=full",
                  "recompute_method=uniform", "recompute_num_layers=1"]),
}


@pytest.fixture(scope="module")
def offsim(offsim_with_and_without_cuda):
    return offsim_with_and_without_cuda


def run(offsim, name, *words, check=0):
    scenario, settings = SETTINGS[name]
    return offsim("run", *words, "--steps", 3, *sets("offload.mode=fixed", *settings), scenario, check=check)


def outcome(done):
    told = json.loads(done.stdout)
    return [[step[key] for key in PRINTS] for step in told["steps"]], told["device_peak_bytes"]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("backing", ["caching", "malloc_async"])
def test_the_bits_and_bytes_of_ref(offsim, name, backing):
    expected = outcome(run(offsim, name, "--on", "ref", "--json"))
    assert outcome(run(offsim, name, *HOST, "--backing", backing, "--json")) == expected


def test_sanitizers_find_nothing(offsim_san):
    run(offsim_san, "modules", *HOST)
    run(offsim_san, "trl", *HOST, "--guards")
    run(offsim_san, "modules", *HOST, "--backing", "malloc_async")
    run(offsim_san, "trl", *HOST, "--backing", "malloc_async")


def test_live_and_reserved_are_those_predicted(offsim, tmp_path):
    scenario, settings = SETTINGS["modules"]
    predicted = tmp_path / "predicted.jsonl"
    offsim("predict", "--record", predicted, *sets("offload.mode=fixed", *settings), scenario, check=0)
    figures = json.loads(predicted.read_text().splitlines()[-1])
    measured = json.loads(run(offsim, "modules", *HOST, "--json").stdout)["gpus"]["ranks"][0]
    for figure in ("requested_peak_bytes", "reserved_peak_bytes"):
        assert measured[figure] == figures[figure]


def test_guards_are_looked_at(offsim):
    told = json.loads(run(offsim, "modules", *HOST, "--guards", "--json").stdout)
    assert told["gpus"]["ranks"][0]["broken_guards"] == 0
    assert told["gpus"]["ranks"][0]["outside_bytes"] > 0


def test_contents_op_by_op(offsim, tmp_path):
    """Every op of every step writes what ref's op writes."""
    traces = [tmp_path / "ref.jsonl", tmp_path / "cuda.jsonl"]
    run(offsim, "modules", "--on", "ref", "--record", traces[0])
    run(offsim, "modules", *HOST, "--contents", "--record", traces[1])
    assert "the same bits" in offsim("compare", *traces, check=0).stdout


@pytest.mark.parametrize("words, message", [
    (["--on", "cuda", "--interleave", 1], "--interleave: error: --on cuda has no such option"),
    (["--on", "ref", "--gpus", 1], "--gpus: error: --on ref has no such option"),
    (["--on", "cuda", "--contents"], "--contents: error: needs --record FILE, which takes them"),
    (["--on", "ref", "--trace", "x"], "--trace: error: --on ref has no clock; --record FILE takes what its ops write"),
    (["--on", "ref", "--trace-ranks", "0"], "--trace-ranks: error: --on ref has no clock"),
    (["--on", "cuda", "--gpus", 0, "--trace", "x"], "--trace: error: the CPU in place of a GPU has no clock"),
    (["--on", "cuda", "--contents", "--record", "y", "--trace", "x"], "--trace: error: has times, which a run with --contents does not"),
    (["--on", "cuda", "--record", "x", "--trace", "x"], '--trace: error: "x" is the file of --record'),
    (["--on", "cuda", "--tensors"], "--tensors: error: needs --arithmetic exact"),
    (["--on", "cuda", "--arithmetic", "quick"], '--arithmetic: error: "quick": expected fast or exact'),
    (["--on", "gpu"], 'there is no executor "gpu"; expected ref or cuda'),
])
def test_refused_options(offsim, words, message):
    done = offsim("run", *words, LLAMA)
    assert done.status == 2 and message in done.stderr


def test_more_gpus_than_there_are(offsim):
    """Nobody has 60 GPUs; without a driver there is none."""
    done = offsim("run", "--on", "cuda", "--gpus", 60, LLAMA)
    assert done.status == 3 and done.stderr.count("\n") == 1


def test_calibrate_needs_a_gpu(offsim, tmp_path):
    done = offsim("calibrate", "--output", tmp_path / "machine.yaml", "--gpus", 64)
    assert done.status == 3 and "GPU" in done.stderr
    assert not (tmp_path / "machine.yaml").exists()


def test_calibrate_options(offsim):
    done = offsim("calibrate")
    assert done.status == 2 and "give the machine's file: --output FILE.yaml" in done.stderr
    assert "--links-only" in offsim("calibrate", "--help", check=0).stdout
    done = offsim("calibrate", "--output", "never.yaml", "--base", "nosuch")
    assert done.status == 2 and "unknown machine 'nosuch'" in done.stderr
