"""offsim compare of a prediction and a real run: the run is the prediction's record, written here as a profiler and an
allocator would have, then changed by known parts."""

import gzip
import json
import pickle
import xml.etree.ElementTree

import pytest

from conftest import sets, validate

SCENARIO = ["docs/examples/one-layer.yaml", *sets("num_layers=3", "global_batch_size=2", "group_query_attention=true",
                                                  "num_query_groups=2")]
BASE = 1790857026000000000
STREAMS = {"compute": 7, "d2h": 36, "h2d": 40, "comm": 50}
NAMES = {"d2h": "Memcpy DtoH (Device -> Pinned)", "h2d": "Memcpy HtoD (Pinned -> Device)"}


def record_of(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted((line for line in lines if "op" in line), key=lambda op: op["op"]), lines


def bytes_of(op):
    return int(op["call"].split()[0])


def as_trace(ops, streams=STREAMS):
    """Each op is issued a microsecond after the one before; kernels keep their times and get names of libraries."""
    events, at, previous = [], 10.0, None
    for correlation, op in enumerate(ops, 1):
        thread = 2 if op["phase"] == "backward" else 1
        place = op["phase"], op["microbatch"]
        if place != previous and op["phase"] == "forward":
            events.append({"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_Iter.__next__", "pid": 1,
                           "tid": 1, "ts": at - 0.5, "dur": 0.25, "args": {}})
        previous = place
        if thread == 2:
            events.append({"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: X", "pid": 1, "tid": 2,
                           "ts": at - 0.25, "dur": 0.75, "args": {}})
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunch", "pid": 1, "tid": thread, "ts": at, "dur": 0.4,
                       "args": {"correlation": correlation}})
        begin, end = op["begin_ps"] / 1e6, op["end_ps"] / 1e6
        name = {"gemm": "nvjet_sm90", "attention_forward": "flash_fwd"}.get(op["name"], op["name"])
        copy = op["kind"] in NAMES
        events.append({"ph": "X", "cat": "gpu_memcpy" if copy else "kernel", "name": NAMES.get(op["kind"], name), "pid": 0,
                       "tid": 7, "ts": begin, "dur": end - begin,
                       "args": {"device": 0, "stream": streams[op["stream"]], "correlation": correlation,
                                **({"bytes": bytes_of(op)} if copy else {})}})
        op["issued"] = at
        at += 1
    events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "pid": 1, "tid": 1, "ts": at,
                   "dur": max(e["ts"] + e["dur"] for e in events) - at, "args": {}})
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "baseTimeNanoseconds": BASE,
            "traceEvents": [{**e, "ts": round(e["ts"], 3), "dur": round(e["dur"], 3)} for e in events]}


def as_snapshot(ops, more=0):
    """Blocks whose sum is the record's requested bytes at each op; `more` bytes live from op 3 to the end."""
    frames = [{"name": "empty", "filename": "torch/functional.py", "line": 1}, {"name": "forward", "filename": "model.py", "line": 7}]
    events, held, total, address = [], [], ops[0]["requested_bytes"], 1 << 40
    static = total

    def note(action, block, op):
        events.append({"action": action, "addr": block[0], "size": block[1], "stream": 0,
                       "time_us": BASE // 1000 + int(op["issued"]), "frames": frames})

    for i, op in enumerate(ops):
        while held and total > op["requested_bytes"]:
            block = held.pop()
            total -= block[1]
            note("free_requested", block, op)
            note("free_completed", block, op)
        if total < op["requested_bytes"]:
            block = address, op["requested_bytes"] - total
            address += block[1]
            held.append(block)
            total += block[1]
            note("alloc", block, op)
        if i == 3 and more:
            note("alloc", (1 << 50, more), op)
    blocks = [{"address": 1 << 39, "size": static, "requested_size": static, "state": "active_allocated", "frames": []}]
    segments = [{"address": 1 << 39, "total_size": static, "stream": 0, "blocks": blocks}]
    for start, size in [*held, *([(1 << 50, more)] if more else [])]:
        segments.append({"address": start, "total_size": size, "stream": 0, "blocks": [
            {"address": start, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}]})
    return pickle.dumps({"segments": segments, "device_traces": [events]}, 4)


@pytest.fixture(scope="module")
def record(offsim, tmp_path_factory):
    path = tmp_path_factory.mktemp("prediction") / "predicted.jsonl"
    offsim("predict", "--record", path, *SCENARIO, check=0)
    return path


@pytest.fixture
def ops(record):
    return record_of(record)[0]


@pytest.fixture
def compare(offsim, tmp_path):
    def run(trace, *options, against=SCENARIO):
        path = tmp_path / "trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
        done = offsim("compare", "--json", *options, *against, path)
        found = json.loads(done.stdout) if done.stdout else None
        if found is not None:
            validate("real-comparison", found)
        return done, found
    return run


def copies(trace, direction):
    return [e for e in trace["traceEvents"] if e["name"] == NAMES[direction]]


def swap(one, other):
    for key in ("ts", "dur"):
        one[key], other[key] = other[key], one[key]
    one["args"]["correlation"], other["args"]["correlation"] = other["args"]["correlation"], one["args"]["correlation"]


def findings(told):
    kinds = ("reordered", "early", "late", "missing", "additional")
    return {kind: told["d2h"][kind] + told["h2d"][kind] for kind in kinds if told["d2h"][kind] + told["h2d"][kind]}


def test_same(compare, record, ops):
    """From the scenario, and from the prediction's record."""
    for against in (SCENARIO, [record]):
        done, told = compare(as_trace(ops), "--same-copies", "--max-step-error", "0.1", against=against)
        assert done.status == 0, done.stderr
        assert told["same_passes"] and told["same_copies"] and findings(told) == {}
        for direction in ("d2h", "h2d"):
            count = sum(op["kind"] == direction for op in ops)
            assert told[direction]["count"] == {"predicted": count, "measured": count} and count > 4
            assert told[direction]["same"] == count and told[direction]["place_measured"] == "own stream"
        for found in told["passes"]:
            of = [op for op in ops if (op["phase"], op["microbatch"]) == (found["kind"], found["microbatch"]) and op["kind"] not in NAMES]
            time_s = (max(op["end_ps"] for op in of) - min(op["begin_ps"] for op in of)) * 1e-12
            assert found["time"]["predicted_s"] == pytest.approx(time_s, abs=1e-9)
            # what the step does before and after its passes counts as the nearest one
            assert time_s - 1e-7 <= found["time"]["measured_s"] <= 1.1 * time_s
        for name, times in told["times"].items():
            if name != "idle":
                assert times["measured_s"] == pytest.approx(times["predicted_s"], rel=1e-3, abs=1e-7), name


def test_missing_and_additional(compare, ops):
    trace = as_trace(ops)
    first, last = copies(trace, "d2h")[0], copies(trace, "h2d")[-1]
    trace["traceEvents"].remove(first)
    trace["traceEvents"].append({**last, "ts": last["ts"] + last["dur"], "args": {**last["args"], "bytes": 4096}})
    done, told = compare(trace, "--same-copies")
    assert done.status == 1 and "gate --same-copies: 2 copies differ" in done.stderr
    assert findings(told) == {"missing": 1, "additional": 1}
    missing = told["d2h"]["differ"][0]
    assert missing["bytes"] == first["args"]["bytes"] and missing["module"] and missing["pass_measured"] is None
    assert told["h2d"]["differ"][0]["bytes"] == 4096


def test_reordered(compare, ops):
    trace = as_trace(ops)
    of = copies(trace, "d2h")
    i = next(i for i in range(len(of) - 1) if of[i]["args"]["bytes"] != of[i + 1]["args"]["bytes"])
    swap(of[i], of[i + 1])
    _, told = compare(trace)
    assert findings(told) == {"reordered": 1} and not told["same_copies"]


@pytest.mark.parametrize("direction, pass_kind, finding", [("d2h", "backward", "late"), ("h2d", "forward", "early")])
def test_moved(compare, ops, direction, pass_kind, finding):
    """Issued by the host in the pass after, or before."""
    trace = as_trace(ops)
    moved = copies(trace, direction)[-1 if finding == "late" else 0]
    mine = next(op for op in ops if op["issued"] == issued_at(trace, moved))
    other = [op for op in ops if op["phase"] == pass_kind and op["microbatch"] == mine["microbatch"] and op["name"] == "gemm"][2]
    call = next(e for e in trace["traceEvents"] if e["cat"] == "cuda_runtime" and
                e["args"].get("correlation") == moved["args"]["correlation"])
    call.update(ts=other["issued"] + 0.41, tid=2 if pass_kind == "backward" else 1)
    _, told = compare(trace)
    assert findings(told) == {finding: 1}, told["passes"]


def issued_at(trace, event):
    return next(e["ts"] for e in trace["traceEvents"] if e["cat"] == "cuda_runtime" and
                e["args"].get("correlation") == event["args"]["correlation"])


@pytest.mark.parametrize("h2d, place", [(7, "a stream with kernels"), (36, "one stream for both directions")])
def test_streams(compare, ops, h2d, place):
    done, told = compare(as_trace(ops, {**STREAMS, "h2d": h2d}), "--same-copies")
    assert findings(told) == {} and told["h2d"]["place_measured"] == place and told["h2d"]["place_predicted"] == "own stream"
    assert done.status == 1 and "other streams than predicted" in done.stderr


def test_other_passes(compare, ops):
    """Without annotations of the data loader there are still both micro-batches, because backward is between; without
    one of the passes copies are aligned over the whole step."""
    _, told = compare(as_trace(ops))
    assert [(p["kind"], p["microbatch"]) for p in told["passes"]] == [
        ("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]
    half = [op for op in ops if op["microbatch"] == 0]
    _, told = compare(as_trace(half))
    assert not told["same_passes"]
    assert findings(told) == {"missing": sum(op["kind"] in NAMES for op in ops if op["microbatch"] == 1)}


def test_speed(compare, ops, record):
    """Of the predicted step that is known, beside a step time that a log gave; a record does not say how many tokens it has."""
    _, told = compare(as_trace(ops), "--step-time", "0.5")
    step = told["step"]["predicted_s"]
    tokens = round(told["tokens_per_s_per_gpu"]["predicted"] * step)
    speed = told["tokens_per_s_per_gpu"]
    assert tokens > 0 and speed == {"predicted": int(tokens / step), "measured": int(tokens / 0.5)}
    _, told = compare(as_trace(ops), against=[record])
    assert told["tokens_per_s_per_gpu"] == {"predicted": None, "measured": None}


def test_memory(offsim, ops, tmp_path):
    """The snapshot alone, and 16 MiB more."""
    as_trace(ops)
    more, path = 16 << 20, tmp_path / "snapshot.pickle"
    for extra, status in ((0, 0), (more, 1)):
        path.write_bytes(as_snapshot(ops, extra))
        junit = tmp_path / "gates.xml"
        done = offsim("compare", "--json", "--max-peak-error", "0.5", "--min-ratio", "90", "--junit", junit, *SCENARIO, path)
        told = json.loads(done.stdout)
        peak = told["memory"]["peaks"]["allocated"]
        assert peak["measured_bytes"] == max(op["requested_bytes"] for op in ops) + extra
        assert told["memory"]["saving"]["predicted_bytes"] - told["memory"]["saving"]["measured_bytes"] == pytest.approx(
            extra, abs=4 << 20)  # tails of blocks, which requested bytes do not have
        suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
        failed = {case.get("name") for case in suite if case.find("failure") is not None}
        assert {case.get("name") for case in suite} == {"max-peak-error", "min-ratio"}
        assert done.status == status == (1 if failed else 0) and suite.get("failures") == str(len(failed))
    row = next(row for row in told["memory"]["blocks_differ"] if row["bytes"] == more)
    assert row["measured_blocks"] == 1 + row["predicted_blocks"]
    assert {"side": "measured", "blocks": row["measured_blocks"], "file": "model.py", "line": 7,
            "function": "forward"} in row["owners"]


def test_picture(offsim, ops, tmp_path):
    """Each op with a lane is a bar, on both sides; the curve of memory is the snapshot's."""
    trace, snapshot, picture = (tmp_path / name for name in ("trace.json", "snapshot.pickle", "picture.svg"))
    trace.write_text(json.dumps(as_trace(ops)))
    snapshot.write_bytes(as_snapshot(ops))
    offsim("compare", *SCENARIO, trace, snapshot, "--plot", picture, check=0)
    drawn = picture.read_text()
    bars = sum(op["end_ps"] > op["begin_ps"] for op in ops)
    assert bars <= drawn.count("<path") + drawn.count("<rect")
    one = offsim("compare", *SCENARIO, trace, snapshot, "--plot", tmp_path / "again.svg", check=0)
    assert one.status == 0 and (tmp_path / "again.svg").read_text() == drawn
    refused = offsim("compare", *SCENARIO, trace, "--plot", tmp_path / "picture.gif")
    assert refused.status == 2 and "picture.gif" in refused.stderr
    snapshot_alone = offsim("compare", *SCENARIO, snapshot, "--plot", picture)
    assert snapshot_alone.status == 2 and "do not give the GPU's times" in snapshot_alone.stderr


def test_refusals(offsim, record, ops, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(as_trace(ops)))
    for words, message in (
            ([record, SCENARIO[0], path], "neither is a real run"),
            ([record, path, "--set", "num_layers=2"], "a configuration cannot be given with it"),
            ([record, path, "--max-peak-error", "1"], "the files do not give the peak"),
            ([record, path, "--rank", "5"], "the prediction has 1 pipeline ranks"),
            ([record, path, "--outputs"], "are for two records of offsim"),
            ([record, record, "--same-copies"], "are for a real run"),
            ([path], "no scenario is given"),
            ([record], "compare takes two traces; found 1")):
        done = offsim("compare", *words)
        assert done.status == 2 and message in done.stderr, (words, done.stderr)
