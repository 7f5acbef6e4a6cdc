"""Traces of predictions in tools that others wrote; offsim's own reader of such traces is one of them."""

import collections
import gzip
import importlib.util
import json
import pathlib
import pickle

import pytest

from conftest import sets

SCENARIO = "docs/examples/te-layers.yaml"
PIPELINE = ["docs/examples/one-layer.yaml", *sets("num_layers=4", "pipeline_model_parallel_size=2", "world_size=2",
                                                  "global_batch_size=4")]


def test_packed_and_piped(offsim, tmp_path):
    """The same trace, plain, packed and on standard output; packed bytes do not depend on the time."""
    names = [tmp_path / name for name in ("a.json", "b.json.gz", "c.json.gz")]
    for path in names:
        offsim("predict", SCENARIO, "--trace", path, check=0)
    plain = names[0].read_bytes()
    assert gzip.decompress(names[1].read_bytes()) == plain
    assert names[1].read_bytes() == names[2].read_bytes()
    assert offsim("predict", SCENARIO, "--trace", "-", check=0).stdout.encode() == plain


def test_compared_with_itself(offsim, tmp_path):
    """Through the profiler's format every copy, time and pass comes back; of one rank at a time."""
    path = tmp_path / "trace.json.gz"
    for rank in range(2):
        offsim("predict", *PIPELINE, "--trace", path, "--trace-ranks", rank, check=0)
        done = offsim("compare", "--json", "--same-copies", "--max-step-error", "0.01", *PIPELINE, path, check=0)
        told = json.loads(done.stdout)
        assert told["rank"] == rank and told["same_passes"]
        assert told["d2h"]["same"] == told["d2h"]["count"]["measured"] > 0
        for times in told["times"].values():
            assert times["measured_s"] == pytest.approx(times["predicted_s"], abs=1e-6)
    offsim("predict", *PIPELINE, "--trace", path, check=0)
    assert "work of GPUs 0 and 1" in offsim("import", path).stderr


@pytest.mark.parametrize("ranks, processes", [("0", {1}), ("1", {2}), ("0,1", {1, 2}), ("0-1", {1, 2}), ("1,0", {1, 2}), (None, {1, 2})])
def test_ranks(offsim, ranks, processes):
    chosen = [] if ranks is None else ["--trace-ranks", ranks]
    found = json.loads(offsim("predict", *PIPELINE, "--trace", "-", *chosen, check=0).stdout)
    assert {e["pid"] for e in found["traceEvents"]} == processes
    assert found["distributedInfo"]["rank"] == min(processes) - 1 and found["distributedInfo"]["world_size"] == 2


@pytest.mark.parametrize("ranks, message", [("2", "there is no rank 2; there are 2"), ("0-2", "there is no rank 2"), ("1-0", "expected ranks"),
                                            ("", "expected ranks"), ("0,", "expected ranks"), ("0;1", "expected ranks"), ("-1", "expected ranks")])
def test_wrong_ranks(offsim, tmp_path, ranks, message):
    path = tmp_path / "trace.json"
    for option in ("--trace", "--memory-snapshot"):
        done = offsim("predict", *PIPELINE, option, path, f"--trace-ranks={ranks}")
        assert done.status == 2 and f"--trace-ranks: error: " in done.stderr and message in done.stderr and not path.exists()


def test_shapes(offsim):
    """Each size of a kernel with its letter, and nothing of its scalars."""
    events = json.loads(offsim("predict", SCENARIO, "--trace", "-", check=0).stdout)["traceEvents"]
    shapes = {(e["name"], e["args"]["shape"]) for e in events if e.get("cat") == "kernel"}
    calls = collections.defaultdict(list)
    for line in offsim("plan", SCENARIO, check=0).stdout.splitlines():
        words = line.split()
        if words[:2] == ["kernel", "compute"]:
            calls[words[2]].append([word for word in words if "=" in word])
    assert len(calls) > 8
    for name, shape in sorted(shapes):
        sizes = shape.rpartition(",")[0].split()
        pairs = [f"{letter}={size}" for letter, size in zip(sizes[::2], sizes[1::2]) if size != "0"]
        assert ";" not in shape and any(call[:len(pairs)] == pairs for call in calls[name]), (name, shape)


def test_hta(offsim, tmp_path):
    """Meta's Holistic Trace Analysis reads both ranks, and finds the same times to its microsecond."""
    analysis = pytest.importorskip("hta.trace_analysis")
    for rank in range(2):
        offsim("predict", *PIPELINE, "--trace", tmp_path / f"rank{rank}.json.gz", "--trace-ranks", rank, check=0)
    found = analysis.TraceAnalysis(trace_dir=str(tmp_path))
    temporal = found.get_temporal_breakdown(visualize=False).set_index("rank")
    kernels = found.get_gpu_kernel_breakdown(visualize=False)[1]
    found.get_idle_time_breakdown(ranks=[0, 1], visualize=False)
    for rank in range(2):
        own = json.loads(offsim("import", "--json", tmp_path / f"rank{rank}.json.gz", check=0).stdout)
        work = sum(s["kernels"] + s["d2h"]["copies"] + s["h2d"]["copies"] for s in own["streams"])
        rounding = work * 2  # it rounds each begin and end down to a microsecond
        events = [e for e in json.loads(gzip.decompress((tmp_path / f"rank{rank}.json.gz").read_bytes()))["traceEvents"]
                  if e.get("cat") in ("kernel", "gpu_memcpy")]
        span_us = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
        idle_us = span_us - own["work_busy_s"] * 1e6
        assert temporal.loc[rank, "idle_time(us)"] == pytest.approx(idle_us, abs=rounding)
        of = kernels[(kernels["rank"] == rank) & (kernels["kernel_type"] == "COMPUTATION")]
        computed = sum(c["time_s"] for name, c in own["kernel_classes"].items() if name != "communication")
        assert of["sum (us)"].sum() == pytest.approx(computed * 1e6, abs=rounding)


# ---- memory snapshots ----

def memory_viz():
    """PyTorch's functions for snapshots: the file alone, which needs no CUDA."""
    torch = importlib.util.find_spec("torch")
    if torch is None:
        pytest.skip("PyTorch is not installed")
    path = pathlib.Path(torch.origin).parent / "cuda" / "_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rank", [0, 1])
def test_snapshot_is_the_predicted_memory(offsim, tmp_path, rank):
    """Its peak is the requested one, and at the peak every block has its partner."""
    path = tmp_path / "snapshot.pickle"
    done = offsim("predict", "--json", "--memory-snapshot", path, "--trace-ranks", rank, *PIPELINE, check=0)
    predicted = json.loads(done.stdout)["result"]["ranks"][rank]
    found = json.loads(offsim("import", "--json", path, check=0).stdout)["memory"]
    assert found["allocated_peak"]["bytes"] == predicted["requested_peak_bytes"]
    told = json.loads(offsim("compare", "--json", "--rank", rank, *PIPELINE, path, check=0).stdout)["memory"]
    assert told["blocks_differ"] == [] and told["blocks_paired"] > 5
    assert told["held_from_before"]["predicted_bytes"] == told["held_from_before"]["measured_bytes"]


def test_pytorch_reads_snapshots(offsim, tmp_path):
    path = tmp_path / "snapshot.pickle.gz"
    viz = memory_viz()
    offsim("predict", "--memory-snapshot", path, *PIPELINE, check=0)
    snapshot = pickle.loads(gzip.decompress(path.read_bytes()))
    at_end = sum(b["size"] for s in snapshot["segments"] for b in s["blocks"])
    assert f"total_allocated: {viz.Bytes(sum(s['requested_size'] for s in snapshot['segments']))}" in viz.segsum(snapshot)
    lines = viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == at_end
    assert any(":exp_avg " in line for line in lines)
    events = snapshot["device_traces"][0]
    assert viz.trace(snapshot).count("del ") == sum(e["action"] == "free_requested" for e in events) > 5
    assert "snapshot.pickle" in viz.trace_plot(snapshot)
