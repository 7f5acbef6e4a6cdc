"""offsim import --align: clocks of traces that are written here with known offsets."""

import json
import random

import pytest

from conftest import validate

BASE_NS = 1790857026000000000
FORWARD, BACKWARD = 40_000, -73_500  # ns that the clocks of ranks 1 and 2 are ahead of rank 0's


def kernel(rank, begin_ns, end_ns, name, group, ranks, **more):
    return {"ph": "X", "cat": "kernel", "name": f"ncclDevKernel_{name}", "pid": 0, "tid": 7, "ts": begin_ns / 1000,
            "dur": (end_ns - begin_ns) / 1000,
            "args": {"device": 0, "stream": 7, "correlation": 1, "Collective name": name, "Process Group Name": group,
                     "Process Group Ranks": str(ranks), **more}}


def write(folder, rank, events, world=3):
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS,
                                "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}))
    return path


def collectives(ranks, offsets, count=20, group="5", name="allreduce", seed=1, at=1_000_000):
    """By rank: each begins at its own time, all end when the last one has had its part, within 3 us."""
    drawn, events = random.Random(seed), {rank: [] for rank in ranks}
    for _ in range(count):
        at += 1_000_000
        begins = {rank: at + drawn.randrange(200_000) for rank in ranks}
        end = max(begins.values()) + 15_000
        for rank in ranks:
            events[rank].append(kernel(rank, begins[rank] + offsets[rank], end + drawn.randrange(3000) + offsets[rank], name, group, ranks))
    return events


def align(offsim, *paths):
    done = offsim("import", "--align", "--json", *paths, check=0)
    found = json.loads(done.stdout)
    validate("aligned-ranks", found)
    return found["ranks"]


def nanoseconds(seconds):
    return round(seconds * 1e9)


def check(row, offset):
    """The offset is what has to be added, and the uncertainty holds."""
    assert abs(nanoseconds(row["offset_s"]) + offset) <= nanoseconds(row["uncertainty_s"]) + 1


def test_two_ranks(offsim, tmp_path):
    offsets = {0: 0, 1: FORWARD}
    events = collectives([0, 1], offsets)
    paths = [write(tmp_path, rank, events[rank]) for rank in (0, 1)]
    rows = align(offsim, *paths)
    check(rows[1], FORWARD)
    assert rows[1]["meetings"] == 20 and not rows[1]["drifts"] and 0 < nanoseconds(rows[1]["uncertainty_s"]) <= 18_000
    # by hand: the tightest bounds of all collectives
    spans = [[(e["ts"] * 1000, (e["ts"] + e["dur"]) * 1000) for e in events[rank]] for rank in (0, 1)]
    least = max(one[0] - other[1] for one, other in zip(*spans))
    most = min(one[1] - other[0] for one, other in zip(*spans))
    assert nanoseconds(rows[1]["offset_s"]) == pytest.approx((least + most) / 2, abs=2)
    assert nanoseconds(rows[1]["uncertainty_s"]) == pytest.approx((most - least) / 2, abs=2)
    waited = [sum(max(one[0], other[0] - shift) - one[0] for one, other in zip(mine, theirs))
              for mine, theirs, shift in ((spans[0], spans[1], FORWARD), (spans[1], spans[0], -FORWARD))]
    for row, want in zip(rows, waited):
        assert nanoseconds(row["wait_s"]) == pytest.approx(want, abs=20 * nanoseconds(rows[1]["uncertainty_s"]))


def test_in_a_chain(offsim, tmp_path):
    """Ranks 0 and 2 meet only rank 1: uncertainties add up."""
    offsets = {0: 0, 1: FORWARD, 2: BACKWARD}
    one, other = collectives([0, 1], offsets), collectives([1, 2], offsets, group="6", seed=2)
    paths = [write(tmp_path, 0, one[0]), write(tmp_path, 1, one[1] + other[1]), write(tmp_path, 2, other[2])]
    rows = align(offsim, *paths)
    check(rows[1], FORWARD)
    check(rows[2], BACKWARD)
    assert rows[2]["compared_with"] == 1 and rows[2]["uncertainty_s"] > rows[1]["uncertainty_s"]


def messages(offset, both=True):
    """Rank 0 sends to 1, and back, each received while it is sent."""
    events = {0: [], 1: []}
    for i in range(5):
        at = 1_000_000 * (i + 1)
        events[0].append(kernel(0, at, at + 90_000, "send", "3", [0, 1], **{"Dst Rank": 1}))
        events[1].append(kernel(1, at + 30_000 + offset, at + 91_000 + offset, "recv", "0", [0, 1], **{"Src Rank": 0}))
        if both:
            events[1].append(kernel(1, at + 500_000 + offset, at + 600_000 + offset, "send", "3", [0, 1], **{"Dst Rank": 0}))
            events[0].append(kernel(0, at + 520_000, at + 600_000, "recv", "0", [0, 1], **{"Src Rank": 1}))
    return events


def test_messages(offsim, tmp_path):
    """Groups of their two ends may have different names; one direction alone bounds one side."""
    events = messages(FORWARD)
    rows = align(offsim, *(write(tmp_path, rank, events[rank]) for rank in (0, 1)))
    check(rows[1], FORWARD)
    assert (nanoseconds(rows[1]["offset_s"]), nanoseconds(rows[1]["uncertainty_s"])) == (-FORWARD + (100_000 - 91_000) // 2, (100_000 + 91_000) // 2)
    events = messages(FORWARD, both=False)
    paths = [write(tmp_path, rank, events[rank]) for rank in (0, 1)]
    rows = align(offsim, *paths)
    assert rows[1]["offset_s"] is None and rows[1]["uncertainty_s"] is None
    assert "in both directions" in offsim("import", "--align", *paths, check=0).stdout


def test_drift(offsim, tmp_path):
    """A clock that runs 1 % fast: within 20 ms no one offset fits; the middle is said to be uncertain by as much."""
    events = collectives([0, 1], {0: 0, 1: 0})
    for event in events[1]:
        event["ts"] *= 1.01
    paths = [write(tmp_path, rank, events[rank]) for rank in (0, 1)]
    rows = align(offsim, *paths)
    assert rows[1]["drifts"]
    assert "the clocks drift" in offsim("import", "--align", *paths, check=0).stdout


def test_only_what_both_have(offsim, tmp_path):
    """A kind that one trace has more often is left out, and said; exchanges of tokens do not bound clocks."""
    offsets = {0: 0, 1: FORWARD}
    good, cut = collectives([0, 1], offsets), collectives([0, 1], offsets, group="8", seed=3)
    exchange = collectives([0, 1], {0: 0, 1: 999_999}, group="9", name="all_to_allv", seed=4)
    paths = [write(tmp_path, 0, good[0] + cut[0] + exchange[0]), write(tmp_path, 1, good[1] + cut[1][:7] + exchange[1])]
    rows = align(offsim, *paths)
    check(rows[1], FORWARD)
    assert rows[1]["meetings"] == 20 and rows[1]["unmatched"] == 13
    assert "13 are in one of the two traces only" in offsim("import", "--align", *paths, check=0).stdout


def test_records_keep_them(offsim, tmp_path):
    events = collectives([0, 1], {0: 0, 1: FORWARD})
    paths = [write(tmp_path, rank, events[rank]) for rank in (0, 1)]
    records = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    for path, record in zip(paths, records):
        offsim("import", "-o", record, path, check=0)
    assert [row["offset_s"] for row in align(offsim, *records)] == [row["offset_s"] for row in align(offsim, *paths)]


def test_refusals(offsim, tmp_path):
    events = collectives([0, 1], {0: 0, 1: FORWARD})
    paths = [write(tmp_path, rank, events[rank]) for rank in (0, 1)]
    for words, message in (
            (paths, "reads those of several ranks with --align"),
            (["--align", paths[0]], "needs the traces of two ranks or more"),
            (["--align", "-o", tmp_path / "x", *paths], "writes no record"),
            (["--align", paths[0], "tests/data/real-run/trace.json"], "has no collectives whose groups are named")):
        done = offsim("import", *words)
        assert done.status == 2 and message in done.stderr, done.stderr
