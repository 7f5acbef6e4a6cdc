"""offsim import: what it prints of a trace and a snapshot, computed here once more from the same files by other means;
formats, damaged files."""

import gzip
import json
import pickle

import pytest

TRACE, SNAPSHOT = "tests/data/real-run/trace.json", "tests/data/real-run/snapshot.pickle"
WORK = ("kernel", "gpu_memset", "gpu_memcpy")


def ns(microseconds):
    return round(microseconds * 1000)


def nanoseconds_covered(spans):
    """As a set of points: slow, and nothing to get wrong."""
    covered = set()
    for event in spans:
        covered.update(range(ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
    return covered


def seconds(count):
    return pytest.approx(count * 1e-9, abs=1e-12)


@pytest.fixture(scope="module")
def events(root):
    return [e for e in json.loads((root / TRACE).read_text())["traceEvents"] if e["ph"] == "X"]


@pytest.fixture(scope="module")
def printed(offsim):
    return json.loads(offsim("import", "--json", TRACE, SNAPSHOT, check=0).stdout)


def test_times(events, printed):
    work = [e for e in events if e["cat"] in WORK]
    kernels = nanoseconds_covered(e for e in work if e["cat"] == "kernel")
    assert printed["work_busy_s"] == seconds(len(nanoseconds_covered(work)))
    assert printed["kernel_busy_s"] == seconds(len(kernels))
    counted = [e for e in events if e["cat"] != "Trace"]
    begin, end = min(ns(e["ts"]) for e in counted), max(ns(e["ts"]) + ns(e["dur"]) for e in counted)
    assert printed["time_s"] == seconds(end - begin)
    assert printed["steps"] == [{"name": "", "time_s": printed["time_s"]}]
    for name, part in (("gemm", "nvjet"), ("attention", "sdpa"), ("communication", "nccl")):
        of = [e for e in work if part in e["name"]]
        assert printed["kernel_classes"][name] == {"kernels": len(of), "time_s": seconds(sum(ns(e["dur"]) for e in of))}
    assert sum(c["kernels"] for c in printed["kernel_classes"].values()) == sum(e["cat"] == "kernel" for e in work)


def test_copies(events, printed):
    kernels = nanoseconds_covered(e for e in events if e["cat"] == "kernel")
    for direction, stream, name in (("d2h", 36, "Memcpy DtoH"), ("h2d", 40, "Memcpy HtoD")):
        copies = [e for e in events if e["cat"] == "gpu_memcpy" and e["args"]["stream"] == stream]
        assert copies and all(e["name"].startswith(name) for e in copies)
        busy = nanoseconds_covered(copies)
        assert printed["offload"][direction] == {
            "copies": len(copies), "pageable": 0, "bytes": sum(e["args"]["bytes"] for e in copies),
            "busy_s": seconds(len(busy)), "exposed_s": seconds(len(busy - kernels))}
        assert busy - kernels, "the file has exposed copies"


def test_streams(events, printed):
    roles = {7: "compute", 28: "communication", 36: "D2H", 40: "H2D"}
    assert {s["stream"]: s["role"] for s in printed["streams"]} == roles
    for row in printed["streams"]:
        of = [e for e in events if e["args"].get("stream") == row["stream"]]
        work = [e for e in of if e["cat"] in WORK]
        assert row["busy_s"] == seconds(len(nanoseconds_covered(work)))
        assert row["kernels"] == sum(e["cat"] == "kernel" for e in of)
        assert row["waits"] == sum(e["cat"] == "cuda_sync" for e in of)
        assert row["d2h"]["bytes"] == sum(e["args"]["bytes"] for e in of if "DtoH" in e["name"])
    pageable = {s["stream"]: s["h2d"]["pageable"] for s in printed["streams"]}
    assert pageable == {7: 2, 28: 0, 36: 0, 40: 0}


def test_passes(events, printed):
    """Two micro-batches; each pass with the copies that it issued."""
    assert [(p["kind"], p["number"], p["d2h_copies"], p["h2d_copies"]) for p in printed["passes"]] == [
        ("forward", 0, 2, 0), ("backward", 0, 0, 2), ("forward", 1, 2, 0), ("backward", 1, 0, 2), ("finish", 0, 0, 0)]
    optimizer = next(e for e in events if "multi_tensor" in e["name"])
    begin = min(ns(e["ts"]) for e in events if e["cat"] != "Trace")
    assert printed["passes"][-1]["begin_s"] == seconds(ns(optimizer["ts"]) - begin)


def test_memory(root, printed):
    """Replayed forward here; offsim goes by the lives of blocks."""
    snapshot = pickle.loads((root / SNAPSHOT).read_bytes())
    trace = next(t for t in snapshot["device_traces"] if t)
    at_end = {b["address"]: b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"}
    seen = {e["addr"] for e in trace if e["action"] == "alloc"}
    held = {address: (b["size"], None) for address, b in at_end.items() if address not in seen}
    peak, owners = 0, None
    for i, event in enumerate(trace):
        if event["action"] == "alloc":
            last = not any(e["addr"] == event["addr"] for e in trace[i + 1:])
            size = at_end[event["addr"]]["size"] if last else -(-event["size"] // 512) * 512
            frame = next(f for f in event["frames"] if not f["filename"].startswith("torch/"))
            held[event["addr"]] = size, frame["line"]
        elif event["action"] == "free_requested":
            del held[event["addr"]]
        if sum(size for size, _ in held.values()) > peak:
            peak, owners = sum(size for size, _ in held.values()), dict(held)
    memory = printed["memory"]
    assert memory["allocated_peak"]["bytes"] == peak
    assert memory["allocated_end_bytes"] == sum(b["size"] for b in at_end.values())
    by_line = {}
    for size, line in owners.values():
        by_line[line] = by_line.get(line, 0) + size
    found = {(o["frames"][1]["line"] if o["frames"] else None): o["bytes"] for o in memory["allocated_peak"]["owners"]}
    assert found == by_line
    assert memory["reserved_peak_bytes"] == sum(s["total_size"] for s in snapshot["segments"])


def test_gzip_and_record(offsim, root, tmp_path):
    """Packed files, and what -o wrote of them, print the same."""
    packed = []
    for name in (TRACE, SNAPSHOT):
        packed.append(tmp_path / f"{name.rpartition('/')[2]}.gz")
        packed[-1].write_bytes(gzip.compress((root / name).read_bytes()))
    record = tmp_path / "run.jsonl"
    plain = offsim("import", "--json", TRACE, SNAPSHOT, check=0).stdout
    assert offsim("import", "--json", "-o", record, *packed, check=0).stdout == plain
    assert offsim("import", "--json", record, check=0).stdout == plain
    again = tmp_path / "again.jsonl"
    offsim("import", "-o", again, record, check=0)
    assert again.read_bytes() == record.read_bytes()


def test_own_record(offsim, tmp_path):
    """A prediction's copies, as predict counts them."""
    record, scenario = tmp_path / "predicted.jsonl", "docs/examples/te-layers.yaml"
    predicted = json.loads(offsim("predict", "--json", "--record", record, scenario, check=0).stdout)
    found = json.loads(offsim("import", "--json", record, check=0).stdout)
    rank = predicted["result"]["ranks"][0]
    for direction in ("d2h", "h2d"):
        assert found["offload"][direction]["bytes"] == rank[f"{direction}_bytes"] > 0
    assert {p["kind"] for p in found["passes"]} == {"forward", "backward", "finish"}
    refused = offsim("import", "--rank", "9", record)
    assert refused.status == 2 and "there is no rank 9" in refused.stderr


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(offsim, root, tmp_path, protocol):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(pickle.loads((root / SNAPSHOT).read_bytes()), protocol))
    assert offsim("import", path, check=0).stdout == offsim("import", SNAPSHOT, check=0).stdout


def test_negative_exponents(offsim, root, tmp_path):
    """Python's json, with which people cut traces, writes small numbers so."""
    text, path = (root / TRACE).read_text(), tmp_path / "trace.json"

    def with_length(length):
        path.write_text(text.replace('"dur": 90.0', f'"dur": {length}', 1))
        return offsim("import", path, check=0).stdout

    assert with_length("9000000e-5") == with_length("90.0") != with_length("9e-05") == with_length("0")


class Calls:
    def __reduce__(self):
        return print, ("called",)


@pytest.mark.parametrize("value, opcode", [
    (Calls(), "GLOBAL"), ({1, 2}, "EMPTY_SET"), (1 << 70, "64 bits"), ({"segments": 1}, 'no list "segments"'),
], ids=["call", "set", "large", "no-snapshot"])
def test_pickles_that_are_refused(offsim, tmp_path, value, opcode):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    done = offsim("import", path)
    assert done.status == 2 and "at byte " in done.stderr and opcode in done.stderr and done.stderr.count("\n") == 1
    assert "called" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", [TRACE, SNAPSHOT])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_cut_files(offsim, root, tmp_path, name, packed):
    """One message with the offset, wherever the file ends."""
    whole = (root / name).read_bytes().rstrip()
    if packed:
        whole = gzip.compress(whole)
    path = tmp_path / "cut"
    for part in (0, 1, 7, 300, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:part])
        done = offsim("import", path)
        assert done.status == 2 and done.stdout == "", part
        assert done.stderr.startswith(f"{path}: error: at byte ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("text, message", [
    ('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}', "a kernel without args.stream"),
    ('{"traceEvents": [{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 1, "dur": 2,'
     ' "args": {"stream": 7}}]}', "a copy without args.bytes"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1e3, "dur": 2}]}', "no positive exponent"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1e-, "dur": 2}]}', "the digits of an exponent"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 2}]}', "needs ProfilerActivity.CUDA"),
    ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 99999999999999999999, "dur": 2}]}', "too large"),
    ('{"traceEvents": [1]}', "found '1'; expected an object"),
    ('{"events": []}', 'there is no "traceEvents"'),
    ('{"traceEvents": []} x', "expected the end of the file"),
    ("SQLite format 3", "an SQLite file"),
    ("hello", "no format that is known"),
])
def test_wrong_files(offsim, tmp_path, text, message):
    path = tmp_path / "trace.json"
    path.write_text(text)
    done = offsim("import", path)
    assert done.status == 2 and message in done.stderr and "at byte " in done.stderr, done.stderr


def test_files_of_two_runs(offsim, root, tmp_path):
    other = json.loads((root / TRACE).read_text())
    other["baseTimeNanoseconds"] += 3600 * 10**9
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(other))
    done = offsim("import", path, SNAPSHOT)
    assert done.status == 2 and "not of the same time" in done.stderr
    done = offsim("import", SNAPSHOT, SNAPSHOT)
    assert done.status == 2 and "a second memory snapshot" in done.stderr
    assert offsim("import").status == 2
