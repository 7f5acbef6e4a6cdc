"""offsim import and compare of what `offsim record` writes. The record is written here from a plan's text: what a program
would have given to its GPU that does what the plan says."""

import json
import re
import struct

import pytest

from conftest import sets, validate

SCENARIO = ["docs/examples/one-layer.yaml", *sets("num_layers=3", "global_batch_size=2")]
KINDS = {name: number for number, name in enumerate((
    "nothing", "filler", "end", "name", "stream", "kernel", "copy", "set", "graph", "host_call", "event_record", "event_wait",
    "event_done", "event_gone", "stream_done", "context_done", "alloc", "free", "block", "block_free", "snapshot"))}
DEVICE, PINNED, SPACE = 1 << 44, 1 << 45, 1 << 43
DEVICE_SPACE, HOST_SPACE, WAITED = 0, 1, 4
STREAMS = "compute", "d2h", "h2d", "comm", "previous", "next", "a2a", "pack", "accumulate", "cpu"


class Record:
    def __init__(self):
        self.rows, self.now, self.names, self.thread = [b"offsim issued 1\n"], 1790857026000000000, {}, 0

    def row(self, kind, *words, flags=0, text=b""):
        self.now += 1000
        body = struct.pack(f"<{len(words)}Q", *words) + text + bytes(-len(text) % 8)
        body += bytes(len(body) % 16)
        self.rows.append(struct.pack("<BBHIQ", KINDS[kind], flags, self.thread, len(body) // 8, self.now) + body)

    def name(self, name):
        if name not in self.names:
            self.names[name] = len(self.names)
            self.row("name", self.names[name], text=name.encode())
        return self.names[name]


def begin():
    record = Record()
    for number in range(len(STREAMS)):
        record.row("stream", number, 1, 0)
    record.row("alloc", DEVICE, SPACE, DEVICE_SPACE)
    record.row("alloc", PINNED, SPACE, HOST_SPACE)
    return record


def issue(record, lines, left_out=()):
    """The lines of a plan's rank, but for some (by index)."""
    sizes = {}
    for index, line in enumerate(lines):
        words = line.split()
        if index in left_out or not words:
            continue
        if not line.startswith("  "):
            record.thread = int(words[0] == "backward")
            continue
        kind, stream = words[:2]
        if kind in ("alloc", "host_alloc"):
            sizes[words[2]] = int(re.search(r" (\d+) bytes ", line)[1])
        elif kind in ("kernel", "collective"):
            record.row("kernel", STREAMS.index(stream), record.name(words[2]))
        elif kind in ("d2h", "h2d"):
            source, target = (re.sub(r"\{.*", "", words[i]) for i in (2, 4))
            host = target if kind == "d2h" else source
            ends = [DEVICE + int(target[1:]) * 512, PINNED + int(source[1:]) * 512]
            if kind == "d2h":
                ends = [PINNED + int(target[1:]) * 512, DEVICE + int(source[1:]) * 512]
            record.row("copy", STREAMS.index(stream), *ends, sizes[host], 1, sizes[host], sizes[host])
        elif kind == "record":
            record.row("event_record", STREAMS.index(stream), int(words[2][1:]) + 1)
        elif kind == "wait":
            record.row("event_wait", STREAMS.index(stream), int(words[2][1:]) + 1)
        elif kind in ("host_wait", "host_read"):
            record.row("event_done", int(words[2][1:]) + 1, flags=WAITED)


def written(path, record, ended=True):
    if ended:
        record.row("end")
    path.write_bytes(b"".join(record.rows))
    return path


@pytest.fixture(scope="module")
def lines(offsim):
    text = offsim("plan", *SCENARIO, check=0).stdout.splitlines()
    return text[text.index("rank 0") + 1:]


@pytest.fixture
def one_step(lines, tmp_path):
    record = begin()
    issue(record, lines)
    return written(tmp_path / "run.issued", record)


def count(lines, *begins):
    return sum(line.split()[:len(begins)] == list(begins) for line in lines)


def test_import(offsim, lines, one_step):
    done = offsim("import", "--json", one_step, check=0)
    found = json.loads(done.stdout)
    validate("import", found)
    assert found["sources"] == "record of offsim record" and found["waits_resolved"] and found["memory"] is None
    by_name = {STREAMS[s["stream"]]: s for s in found["streams"]}
    assert by_name["compute"]["role"] == "compute" and by_name["d2h"]["role"] == "D2H" and by_name["h2d"]["role"] == "H2D"
    for name in ("compute", "d2h", "h2d"):
        assert by_name[name]["kernels"] == count(lines, "kernel", name)
        assert by_name[name]["waits"] == count(lines, "wait", name)
    for direction in ("d2h", "h2d"):
        assert found["offload"][direction]["copies"] == count(lines, direction) > 4
        assert found["offload"][direction]["pageable"] == 0
    assert [(p["kind"], p["number"]) for p in found["passes"]] == [
        ("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("finish", 0)]
    text = offsim("import", one_step, check=0).stdout
    assert "no times of the GPU" in text and "GB/s" not in text and "exposed" not in text


def test_record_of_import(offsim, one_step, tmp_path):
    """What -o writes compares the same."""
    path = tmp_path / "run.jsonl"
    offsim("import", "-o", path, one_step, check=0)
    for arguments in (["import", "--json"], ["compare", "--json", *SCENARIO]):
        assert offsim(*arguments, path, check=0).stdout == offsim(*arguments, one_step, check=0).stdout


def test_same_waits(offsim, one_step):
    done = offsim("compare", "--json", "--same-copies", "--all-waits", *SCENARIO, one_step, check=0)
    told = json.loads(done.stdout)
    validate("real-comparison", told)
    assert told["same_passes"] and told["same_copies"] and told["step"]["measured_s"] is None
    for direction in ("d2h", "h2d"):
        for order in ("before", "after"):
            assert told["waits"][direction][order]["same"] == told[direction]["count"]["measured"]
    assert told["waits"]["differ"] == []


def edges(lines, before, of):
    """Lines `wait OF` for events that stream `before` recorded."""
    events = {line.split()[2] for line in lines if line.split()[:2] == ["record", before]}
    return [i for i, line in enumerate(lines) if line.split()[:2] == ["wait", of] and line.split()[2] in events]


@pytest.mark.parametrize("before, of, order, direction", [("h2d", "compute", "after", "h2d"), ("compute", "d2h", "before", "d2h")])
def test_missing_wait(offsim, lines, tmp_path, before, of, order, direction):
    """Each of them: the copies that it was for have another order, or another wait has the same effect."""
    all_waits, found = edges(lines, before, of), 0
    assert len(all_waits) > 1
    for left_out in all_waits:
        record = begin()
        issue(record, lines, [left_out])
        done = offsim("compare", "--json", "--all-waits", *SCENARIO, written(tmp_path / "run.issued", record))
        told = json.loads(done.stdout)
        validate("real-comparison", told)
        findings = told["waits"][direction][order]
        wrong = findings["missing"] + findings.get("late", 0)
        assert (done.status == 1) == (wrong > 0)
        found += wrong > 0
        if wrong:
            assert "gate --all-waits" in done.stderr
            assert any(row["order"] == order and row["direction"] == direction and row["module"] for row in told["waits"]["differ"])
    assert found >= len(all_waits) // 2


def test_without_any_wait(offsim, lines, tmp_path):
    record = begin()
    issue(record, lines, edges(lines, "h2d", "compute"))
    done = offsim("compare", *SCENARIO, "--same-copies", "--all-waits", written(tmp_path / "run.issued", record))
    assert done.status == 1 and "gate --all-waits" in done.stderr and "gate --same-copies" not in done.stderr
    assert "is never waited for" in done.stdout


def test_last_step_of_several(offsim, lines, tmp_path):
    """The first two steps have no waits; only the last one is compared, and the output says so."""
    record = begin()
    for left_out in (edges(lines, "h2d", "compute"), edges(lines, "h2d", "compute"), ()):
        issue(record, lines, left_out)
    path = written(tmp_path / "run.issued", record)
    done = offsim("compare", "--same-copies", "--all-waits", *SCENARIO, path, check=0)
    assert "8 passes before them are left out" in done.stdout
    assert sum(p["kind"] == "forward" for p in json.loads(offsim("import", "--json", path, check=0).stdout)["passes"]) == 6


def test_against_a_record_of_a_prediction(offsim, one_step, tmp_path):
    """It has no waits, which the output says, and the gate needs them."""
    predicted = tmp_path / "predicted.jsonl"
    offsim("predict", "--record", predicted, *SCENARIO, check=0)
    done = offsim("compare", "--same-copies", predicted, one_step, check=0)
    assert "not compared: the record of a prediction" in done.stdout
    done = offsim("compare", "--all-waits", predicted, one_step)
    assert done.status == 2 and "the files do not give the waits" in done.stderr


def test_killed(offsim, lines, tmp_path):
    record = begin()
    issue(record, lines)
    path = written(tmp_path / "run.issued", record, ended=False)
    assert "whose process was killed" in offsim("import", path, check=0).stdout


@pytest.mark.parametrize("rows, message", [
    ([("kernel", 0, 0)], "of a stream that is not known before"),
    ([("stream", 1, 0, 0)], "out of order"),
    ([("stream", 0, 1, 0), ("kernel", 0, 3)], "has no name before it"),
    ([("stream", 0, 1, 0), ("copy", 0, 1, 2, 1 << 62, 1 << 62, 1, 1)], "of more bytes than 64 bits hold"),
    ([], "the record has no rows"),
])
def test_wrong_rows(offsim, tmp_path, rows, message):
    record = Record()
    for row in rows:
        record.row(*row)
    done = offsim("import", written(tmp_path / "run.issued", record))
    assert done.status == 2 and message in done.stderr and "at byte " in done.stderr and done.stderr.count("\n") == 1


def test_cut(offsim, one_step, tmp_path):
    whole, path = one_step.read_bytes(), tmp_path / "cut"
    for part in (20, 31, len(whole) // 2 + 3):
        path.write_bytes(whole[:part])
        done = offsim("import", path)
        assert done.status == 2 and "the record ends within a row" in done.stderr and done.stdout == ""


def test_memory_of_the_record(offsim):
    """PyTorch's history, which the recorder stores at the end, is that of the file alone."""
    seed, snapshot = "tests/fuzz/seeds/fuzz_issued_run/all", "tests/data/real-run/snapshot.pickle"
    found, alone = (json.loads(offsim("import", "--json", path, check=0).stdout)["memory"] for path in (seed, snapshot))
    for memory in (found, alone):
        for peak in ("allocated_peak", "active_peak"):
            memory[peak].pop("at_s")
    assert found == alone and found["allocated_peak"]["bytes"] > 0


def test_small_copies_among_kernels(offsim, tmp_path):
    """save_on_cpu copies on compute's stream, also what is smaller than 64 KiB; a loss that is read is no copy of offloading."""
    scenario = ["docs/examples/hf-layers.yaml", *sets("num_layers=2", "offload.system=save_on_cpu")]
    text = offsim("plan", *scenario, check=0).stdout.splitlines()
    record = begin()
    issue(record, text[text.index("rank 0") + 1:])
    record.row("copy", 0, PINNED, DEVICE, 4, 1, 4, 4, flags=WAITED)
    done = offsim("compare", "--json", "--same-copies", "--all-waits", *scenario, written(tmp_path / "run.issued", record), check=0)
    told = json.loads(done.stdout)
    for direction in ("d2h", "h2d"):
        planned = [line for line in text if line.split()[:1] == [direction]]
        assert told[direction]["same"] == told[direction]["count"]["measured"] == len(planned) > 10
        assert told[direction]["place_measured"] == "a stream with kernels"
    sizes = [int(line.split(" bytes ")[0].split()[-1]) for line in text if line.startswith("  host_alloc")]
    assert min(sizes) < 64 * 1024 < max(sizes)
