"""offsim calibrate --from: a machine from a trace. The trace is that of a prediction on another machine, so what has to be
found is known."""

import gzip
import json
import re

import pytest

from conftest import ROOT, sets

SCENARIO = ["docs/examples/one-layer.yaml", *sets("num_layers=4", "global_batch_size=3", "seq_length=4096")]
PIPELINE = ["docs/examples/one-layer.yaml", *sets("num_layers=4", "pipeline_model_parallel_size=2", "world_size=2",
                                                  "global_batch_size=4", "seq_length=2048")]
SLOWER = {"gemm_bf16_gflops": 0.75, "attention_forward_gflops": 0.8, "attention_backward_gflops": 0.6,
          "hbm_reached_permille": 0.85, "d2h_bytes_per_us": 0.7, "h2d_bytes_per_us": 0.75, "one_way_bytes_per_us": 0.6,
          "module_ns": 1.6, "node_ns": 1.6, "operator_ns": 1.6, "check_ns": 1.6, "product_ns": 1.6, "compiled_ns": 1.6,
          "parameter_ns": 1.6, "tensor_ns": 1.6, "offload_out_ns": 2.0, "offload_in_ns": 1.2, "forward_ns": 1.6,
          "backward_ns": 1.6, "step_ns": 1.6, "collective_ns": 1.6}


def values(path):
    return {key: int(value) for key, value in re.findall(r"^  (\w+): (\d+)", path.read_text(), re.M)}


@pytest.fixture
def other(tmp_path):
    """H200-SXM with other rates. Keys of one name in several sections change together."""
    text = (ROOT / "sim/machine/presets/H200-SXM.yaml").read_text()
    for key, factor in SLOWER.items():
        text = re.sub(rf"(\n  {key}: )(\d+)", lambda m: m[1] + str(int(int(m[2]) * factor)), text)
    path = tmp_path / "other.yaml"
    path.write_text(text)
    return path


def step(offsim, machine, *scenario):
    told = json.loads(offsim("predict", *scenario, "--machine", machine, "--brief", "--json", check=0).stdout)
    return float(told["result"]["step_time_s"])


def calibrate(offsim, tmp_path, other, scenario, rank=0):
    trace, found = tmp_path / "trace.json.gz", tmp_path / "found.yaml"
    offsim("predict", *scenario, "--machine", other, "--trace", trace, "--trace-ranks", rank, check=0)
    done = offsim("calibrate", "--from", trace, "--step-time", step(offsim, other, *scenario), "--base", "H200-SXM", "-o", found,
                  *scenario, check=0)
    return found, done.stdout


@pytest.mark.parametrize("scenario, rank", [(SCENARIO, 0), (PIPELINE, 1)])
def test_finds_the_machine(offsim, tmp_path, other, scenario, rank):
    """The step, that of the run without offload, and with more layers; all ops have their kernels."""
    found, told = calibrate(offsim, tmp_path, other, scenario, rank)
    variants = [[], sets("fine_grained_activation_offloading=false", "offload_modules="), sets("num_layers=8")]
    for changes in variants:
        true, guessed = (step(offsim, machine, *scenario, *changes) for machine in (other, found))
        assert guessed == pytest.approx(true, rel=0.03), changes
        assert step(offsim, "H200-SXM", *scenario, *changes) < 0.9 * true
    found = re.findall(r"(\w+) +(\d+) of (\d+) +(\d+) of (\d+)", told)
    assert len(found) >= 5
    for name, ops, of_ops, kernels, of_kernels in found:
        assert ops == of_ops, name
        # A prediction's trace has two slices for an exchange of two messages, NCCL one kernel.
        assert name == "communication" or kernels == of_kernels, name


def test_finds_the_links(offsim, tmp_path, other):
    found, _ = calibrate(offsim, tmp_path, other, PIPELINE, 1)
    true, got = values(other), values(found)
    for key in ("d2h_bytes_per_us", "one_way_bytes_per_us"):
        assert got[key] == pytest.approx(true[key], rel=0.03), key
    assert got["offload_out_ns"] == pytest.approx(true["offload_out_ns"], rel=0.2)


def test_the_same_machine_stays(offsim, tmp_path):
    """Of a trace on the base itself, every call keeps its time within 4 percent; what the trace lacks says whose it is."""
    found, told = calibrate(offsim, tmp_path, "H200-SXM", SCENARIO)
    assert step(offsim, found, *SCENARIO) == pytest.approx(step(offsim, "H200-SXM", *SCENARIO), rel=0.01)
    text = found.read_text()
    assert re.search(r"nic_bytes_per_us: 50000 published  # H200-SXM\n", text)
    assert re.search(r"bus_bytes_per_us: \d+ published  # H200-SXM\n", text)
    assert re.search(r"module_ns: \d+ calibrated", text)
    assert "the others are those of H200-SXM" in told


def test_without_step_time(offsim, tmp_path, other):
    trace = tmp_path / "trace.json"
    offsim("predict", *SCENARIO, "--machine", other, "--trace", trace, check=0)
    told = offsim("calibrate", "--from", trace, "--base", "H200-SXM", "-o", tmp_path / "m.yaml", *SCENARIO, check=0).stdout
    assert "--step-time gives a step without it" in told and "logged" not in told


def test_profiler_slows_the_host(offsim, tmp_path):
    """Every event of the host takes 40 us longer than without the profiler, and is drawn out; the step's time says so."""
    scenario = [*SCENARIO, *sets("seq_length=64", "hidden_size=256", "ffn_hidden_size=512", "num_attention_heads=4")]
    trace, slow, found = tmp_path / "trace.json", tmp_path / "slow.json", tmp_path / "found.yaml"
    offsim("predict", *scenario, "--machine", "H200-SXM", "--trace", trace, check=0)
    record = json.loads(trace.read_text())
    late, events = 0.0, sorted(record["traceEvents"], key=lambda e: (e.get("ts", 0), e.get("cat") != "cuda_runtime"))
    by_correlation = {}
    for event in events:
        if event.get("cat") == "cuda_runtime" and "correlation" in event.get("args", {}):
            late += 10
            by_correlation[event["args"]["correlation"]] = late
        event["ts"] = event.get("ts", 0) + late
    for event in events:
        if event.get("cat") == "kernel":
            event["ts"] = max(event["ts"], 0)
    slow.write_text(json.dumps(record))
    true = step(offsim, "H200-SXM", *scenario)
    told = offsim("calibrate", "--from", slow, "--step-time", true, "--base", "H200-SXM", "-o", found, *scenario, check=0).stdout
    taken = int(re.search(r"(\d+) ns an event", told)[1])
    assert 5000 < taken <= 12000
    assert step(offsim, found, *scenario) == pytest.approx(true, rel=0.01)


def test_copies_say_nothing_about_the_clock(offsim, tmp_path):
    """Where copies decide the step, a logged step 2 percent shorter does not make products faster."""
    scenario, keep = ["docs/examples/hf-layers.yaml", *sets("system=trl")], sets("system=none")
    trace, found = tmp_path / "trace.json", tmp_path / "found.yaml"
    offsim("predict", *scenario, "--machine", "H200-SXM", "--trace", trace, check=0)
    shorter = 0.98 * step(offsim, "H200-SXM", *scenario)
    told = offsim("calibrate", "--from", trace, "--step-time", shorter, "--base", "H200-SXM", "-o", found, *scenario, check=0).stdout
    assert float(re.search(r"only copies (\S+) %", told)[1]) > 10 and "clock" not in told
    true = step(offsim, "H200-SXM", *scenario, *keep)
    assert step(offsim, found, *scenario, *keep) == pytest.approx(true, rel=0.02)


def test_gradients_of_experts(offsim, tmp_path):
    """As in real traces, a grouped product is a kernel for each expert, and the hooks of gradients follow their launches."""
    experts, hook_ns = 16, 60000
    scenario = ["docs/examples/one-layer.yaml", *sets(
        "num_layers=4", "global_batch_size=2", f"num_experts={experts}", "moe_router_topk=2", "moe_grouped_gemm=true", "moe_ffn_hidden_size=512",
        "moe_token_dispatcher_type=alltoall", "fine_grained_activation_offloading=false", "offload_modules=")]
    machine, trace, found = tmp_path / "machine.yaml", tmp_path / "trace.json", tmp_path / "found.yaml"
    base = ROOT / "sim/machine/presets/H200-SXM.yaml"
    machine.write_text(re.sub(r"( parameter_ns: )\d+", rf"\g<1>{hook_ns}", base.read_text()))
    offsim("predict", *scenario, "--machine", machine, "--trace", trace, check=0)
    record = json.loads(trace.read_text())
    launches = {e["args"]["correlation"]: e for e in record["traceEvents"] if e.get("cat") == "cuda_runtime" and "args" in e}
    number = max(launches)
    for kernel in [e for e in record["traceEvents"] if e.get("cat") == "kernel" and "gemm" in e["name"]]:
        launch = launches[kernel["args"]["correlation"]]
        of_weight = re.search(r" k (4096|8192) ", kernel["args"]["shape"])
        if kernel["name"] == "gemm":
            launch["ts"] -= hook_ns / 1e3 if of_weight else 0
            continue
        launch["ts"] -= experts * hook_ns / 1e3 if of_weight else 0
        kernel["dur"] /= experts
        for i in range(1, experts):
            number += 1
            record["traceEvents"] += [
                {**launch, "ts": launch["ts"] - 3 * i, "args": {"correlation": number}},
                {**kernel, "ts": kernel["ts"] + i * kernel["dur"], "args": {**kernel["args"], "correlation": number}}]
    trace.write_text(json.dumps(record))
    true = step(offsim, machine, *scenario)
    offsim("calibrate", "--from", trace, "--step-time", true, "--base", "H200-SXM", "-o", found, *scenario, check=0)
    # Pulled towards the factor of all kinds of work, which is 1.
    assert 1.5 * values(base)["parameter_ns"] < values(found)["parameter_ns"] <= hook_ns
    for key in ("product_ns", "compiled_ns", "check_ns"):
        assert values(found)[key] == pytest.approx(values(base)[key], rel=0.15), key


def test_gpu_of_the_trace(offsim, tmp_path):
    """The base is the shipped machine of the GPU that the trace names."""
    trace = tmp_path / "trace.json"
    offsim("predict", *SCENARIO, "--machine", "H100-SXM", "--trace", trace, check=0)
    arguments = ["calibrate", "--from", trace, "-o", tmp_path / "m.yaml", *SCENARIO]
    assert "does not name its GPU" in offsim(*arguments, check=2).stderr
    record = json.loads(trace.read_text())
    record["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    trace.write_text(json.dumps(record))
    offsim(*arguments, check=0)
    assert re.search(r"gpu_name: H100\n", (tmp_path / "m.yaml").read_text())
    record["deviceProperties"][0]["name"] = "Quadro"
    trace.write_text(json.dumps(record))
    assert "no shipped machine has a \"Quadro\"" in offsim(*arguments, check=2).stderr


def test_refusals(offsim, tmp_path):
    trace, to = tmp_path / "trace.json.gz", tmp_path / "m.yaml"
    offsim("predict", *SCENARIO, "--trace", trace, check=0)
    for arguments, message in [
            (["--step-time", "1", "-o", to], "--step-time: error: describes the run of a trace"),
            (["--rank", "1", "-o", to], "--rank: error: describes the run of a trace"),
            (["-o", to, *SCENARIO], "without --from"),
            (["-o", to, *sets("num_layers=3")], "give the trace with --from"),
            (["--from", trace, *SCENARIO], "give the machine's file: --output FILE.yaml"),
            (["--from", trace, "-o", to, "--links-only", *SCENARIO], "--links-only: error: measures this machine"),
            (["--from", trace, "-o", to, "--gpus", "2", *SCENARIO], "--gpus: error: measures this machine"),
            (["--from", trace, "-o", to, "--base", "H200-SXM", "--machine", "H200-SXM", *SCENARIO], "give one"),
            (["--from", trace, "-o", to, "--base", "H200-SXM", "--rank", "1", *SCENARIO], "1 pipeline ranks"),
            (["--from", tmp_path / "none", "-o", to, "--base", "H200-SXM", *SCENARIO], "No such file"),
            (["--from", trace, "-o", to, "--base", "H200-SXM", *SCENARIO, "more.yaml"], "calibrate takes one scenario; found 2"),
            (["--from", "tests/data/real-run/snapshot.pickle", "-o", to, "--base", "H200-SXM", *SCENARIO],
             "is a memory snapshot")]:
        done = offsim("calibrate", *arguments, check=2)
        assert message in done.stderr, done.stderr
        assert done.stderr.count("error:") == 1


def test_other_passes(offsim, tmp_path):
    """A trace of other micro-batches is matched over the whole step, with a note."""
    trace, to = tmp_path / "trace.json.gz", tmp_path / "m.yaml"
    offsim("predict", *SCENARIO, *sets("global_batch_size=2"), "--machine", "H200-SXM", "--trace", trace, check=0)
    done = offsim("calibrate", "--from", trace, "-o", to, "--base", "H200-SXM", *SCENARIO, check=0)
    assert "are not those of the configuration" in done.stderr
    assert step(offsim, to, *SCENARIO) == pytest.approx(step(offsim, "H200-SXM", *SCENARIO), rel=0.1)
