"""offsim import of Nsight Systems' exports. There is no nsys here: the export is made of a profiler's trace, in the schema
that NVIDIA documents, and must give what the trace gives."""

import gzip
import json
import sqlite3

import pytest

from conftest import validate

TRACE = "tests/data/real-run/trace.json"
SESSION = 1790857000000000000
PROCESS = 4711 << 24
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER NOT NULL, name TEXT, busLocation TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  syncType INTEGER NOT NULL, eventId INTEGER NOT NULL, eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, eventId INTEGER NOT NULL, eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
  textId INTEGER, globalTid INTEGER, domainId INTEGER);
"""
MEMORY = {"Pageable": 0, "Pinned": 1, "Device": 2}


def put(db, table, **columns):
    db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", list(columns.values()))


class Export:
    def __init__(self, path):
        self.path, self.strings = path, {}
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)
        put(self.db, "TARGET_INFO_SESSION_START_TIME", utcEpochNs=SESSION)
        for label, number in MEMORY.items():
            put(self.db, "ENUM_CUDA_MEM_KIND", id=number, name=f"CUDA_MEMOPR_MEMORY_KIND_{label.upper()}", label=label)

    def text(self, value):
        if value not in self.strings:
            self.strings[value] = len(self.strings) + 1
            put(self.db, "StringIds", id=self.strings[value], value=value)
        return self.strings[value]

    def close(self):
        self.db.commit()
        self.db.close()
        return self.path


def kinds_of(name):
    """'Memcpy DtoH (Device -> Pinned)'"""
    source, target = name[name.index("(") + 1:-1].split(" -> ")
    return {"copyKind": {"HtoD": 1, "DtoH": 2, "DtoD": 8}[name.split()[1]], "srcKind": MEMORY[source], "dstKind": MEMORY[target]}


def export(path, trace, process=PROCESS, device=None, into=None):
    made = into or Export(path)
    db, base = made.db, trace["baseTimeNanoseconds"] - SESSION
    for event in trace["traceEvents"]:
        if event["ph"] != "X":
            continue
        start = base + round(event["ts"] * 1000)
        times = {"start": start, "end": start + round(event["dur"] * 1000)}
        args, name, kind = event.get("args", {}), event["name"], event["cat"]
        on_gpu = {"deviceId": args.get("device", 0) if device is None else device, "contextId": 1, "streamId": args.get("stream", 0),
                  "correlationId": args.get("correlation"), "globalPid": process}
        thread = process + event["tid"] % (1 << 24) if isinstance(event["tid"], int) else process
        if kind == "kernel":
            put(db, "CUPTI_ACTIVITY_KIND_KERNEL", **times, **on_gpu, demangledName=made.text(name), shortName=made.text("f"), gridX=1)
        elif kind == "gpu_memcpy":
            put(db, "CUPTI_ACTIVITY_KIND_MEMCPY", **times, **on_gpu, bytes=args["bytes"], **kinds_of(name))
        elif kind == "gpu_memset":
            put(db, "CUPTI_ACTIVITY_KIND_MEMSET", **times, **on_gpu, value=0, bytes=args["bytes"])
        elif kind == "cuda_sync" and name == "Stream Wait Event":
            put(db, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **times, **on_gpu, syncType=2, eventId=5, eventSyncId=1)
        elif kind in ("cuda_runtime", "cuda_driver"):
            put(db, "CUPTI_ACTIVITY_KIND_RUNTIME", **times, eventClass=0, globalTid=thread, correlationId=args.get("correlation"),
                nameId=made.text(f"{name}_v7000"), returnValue=0)
        elif kind in ("user_annotation", "cpu_op"):
            where = {"textId": made.text(name)} if kind == "cpu_op" else {"text": name}
            put(db, "NVTX_EVENTS", **times, eventType=59, globalTid=thread, **where)
    return made


@pytest.fixture(scope="module")
def trace(root):
    return json.loads((root / TRACE).read_text())


@pytest.fixture
def file(trace, tmp_path):
    return export(tmp_path / "run.sqlite", trace).close()


def test_same_as_the_trace(offsim, file):
    one, other = (json.loads(offsim("import", "--json", path, check=0).stdout) for path in (TRACE, file))
    validate("import", other)
    assert other["sources"] == "export of Nsight Systems" and not other["waits_resolved"]
    for found in (one, other):
        found["streams"].sort(key=lambda s: s["stream"])
    differ = {key for key in one if one[key] != other[key]}
    assert differ == {"sources", "rank", "world_size"}, differ


def test_passes_by_threads(offsim, trace, tmp_path):
    """Without ranges of operators, what the second thread issued is backward."""
    made = export(tmp_path / "run.sqlite", trace)
    made.db.execute("DELETE FROM NVTX_EVENTS")
    found = json.loads(offsim("import", "--json", made.close(), check=0).stdout)
    want = json.loads(offsim("import", "--json", TRACE, check=0).stdout)
    threads = {e["tid"] for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in ("cuda_runtime", "cuda_driver")}
    assert len(threads) > 1
    assert [p["kind"] for p in found["passes"]] == [p["kind"] for p in want["passes"]]


def test_resolved_waits(offsim, trace, tmp_path):
    """Events that were recorded on a stream, at the time of their calls."""
    made = export(tmp_path / "run.sqlite", trace)
    call = made.db.execute("SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId IS NOT NULL").fetchone()[0]
    put(made.db, "CUPTI_ACTIVITY_KIND_CUDA_EVENT", deviceId=0, contextId=1, streamId=7, correlationId=call, globalPid=PROCESS, eventId=5,
        eventSyncId=1)
    device = made.db.execute("SELECT deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
    made.db.execute("UPDATE CUPTI_ACTIVITY_KIND_CUDA_EVENT SET deviceId = ?", (device,))
    found = json.loads(offsim("import", "--json", made.close(), check=0).stdout)
    assert found["waits_resolved"]


def test_processes(offsim, trace, tmp_path):
    """One of each GPU: ranks in the order of the GPUs, with the same numbers of calls."""
    made = Export(tmp_path / "run.sqlite")
    export(None, trace, process=99 << 24, device=1, into=made)
    half = {**trace, "traceEvents": [e for e in trace["traceEvents"] if "Memcpy" not in e["name"]]}
    export(None, half, process=PROCESS, device=0, into=made)
    path = made.close()
    for rank, copies in ((0, 0), (1, 4)):
        found = json.loads(offsim("import", "--json", "--rank", rank, path, check=0).stdout)
        assert (found["rank"], found["world_size"]) == (rank, 2)
        assert found["offload"]["d2h"]["copies"] == copies
    done = offsim("import", "--rank", "2", path)
    assert done.status == 2 and "there is no rank 2; the export has kernels of 2 processes" in done.stderr


def test_old_columns(offsim, trace, tmp_path):
    """Exports without eventSyncId, without the names of kinds of memory."""
    made = export(tmp_path / "run.sqlite", trace)
    for change in ("ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN eventSyncId",
                   "ALTER TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT DROP COLUMN eventSyncId", "DROP TABLE ENUM_CUDA_MEM_KIND"):
        made.db.execute(change)
    found = json.loads(offsim("import", "--json", made.close(), check=0).stdout)
    assert found["offload"]["d2h"]["copies"] == 4 and {s["h2d"]["pageable"] for s in found["streams"]} == {0}


@pytest.mark.parametrize("change, message", [
    ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY", "no export of Nsight Systems"),
    ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName", "no such column: k.demangledName"),
    ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1", "times are out of order"),
    ("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = -1", "a copy of a negative size"),
    ("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = -1", "begin of the session"),
    ("UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET eventSyncId = -1", "an event whose number is out of range"),
])
def test_wrong_contents(offsim, trace, tmp_path, change, message):
    made = export(tmp_path / "run.sqlite", trace)
    made.db.executescript(change)
    done = offsim("import", made.close())
    assert done.status == 2 and message in done.stderr and done.stderr.count("\n") == 1 and done.stdout == "", done.stderr


def test_a_view_is_not_run(offsim, trace, tmp_path):
    made = export(tmp_path / "run.sqlite", trace)
    made.db.executescript("DROP TABLE CUPTI_ACTIVITY_KIND_MEMSET; CREATE VIEW CUPTI_ACTIVITY_KIND_MEMSET AS "
                          "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
    found = json.loads(offsim("import", "--json", made.close(), check=0).stdout)
    assert {s["memsets"] for s in found["streams"]} == {0}


@pytest.mark.parametrize("part", [16, 99, 1024, 4096, 20000])
def test_cut(offsim, file, tmp_path, part):
    path = tmp_path / "cut"
    path.write_bytes(file.read_bytes()[:part])
    done = offsim("import", path)
    assert done.status == 2 and done.stderr.startswith(f"{path}: error: at byte ") and done.stderr.count("\n") == 1


def test_packed(offsim, file, tmp_path):
    path = tmp_path / "run.sqlite.gz"
    path.write_bytes(gzip.compress(file.read_bytes()))
    done = offsim("import", path)
    assert done.status == 2 and "unpack it first" in done.stderr
