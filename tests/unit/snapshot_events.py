#!/usr/bin/env python3
"""Writes a PyTorch memory snapshot of one device as the lines that tests/unit/test_snapshot_replay.c replays.

    tests/unit/snapshot_events.py SNAPSHOT.pickle[.gz] > EVENTS.txt

    segment STREAM BYTES        in the order of addresses; a small pool's have 2 MiB
    block SEGMENT OFFSET BYTES  what is allocated before the first event; blocks are numbered in this order, then in
                                that of allocation
    alloc STREAM BYTES SEGMENT OFFSET
    free BLOCK [QUEUE]          with a queue: other streams still use it; those of a queue are done in order
    done BLOCK                  ... and are done with it
    end BLOCK BYTES             of what is allocated after the last event

The snapshot's history must be complete, and contain no segment that the driver gives or takes back.
"""
import gzip
import pickle
import sys

ROUNDING = 512
QUEUES = 8


def load(path):
    data = (gzip.open if path.endswith(".gz") else open)(path, "rb")
    with data:
        snapshot = pickle.load(data)
    device = next(i for i, trace in enumerate(snapshot["device_traces"]) if trace)
    segments = [s for s in snapshot["segments"] if s["device"] == device]
    return sorted(segments, key=lambda s: s["address"]), snapshot["device_traces"][device]


class Places:
    """Addresses as segment and offset."""

    def __init__(self, segments):
        self.segments = segments

    def of(self, address):
        low, high = 0, len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.segments[middle]["address"] <= address else (low, middle)
        return low, address - self.segments[low]["address"]


def blocks_at_end(segments):
    """By address: bytes of the block; allocated ones alone."""
    found = {}
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[at] = block["size"]
            at += block["size"]
    return found


def blocks_at_start(end, trace):
    """By address: bytes of what is allocated before the first event."""
    start, seen = dict(end), set()
    for event in trace:
        action, address = event["action"], event["addr"]
        assert action in ("alloc", "free_requested", "free_completed"), action
        if address in seen:
            continue
        seen.add(address)
        assert action != "free_completed", "a block waits before the history begins"
        start.pop(address, None)
        if action == "free_requested":
            start[address] = -(-event["size"] // ROUNDING) * ROUNDING
    return start


def completions(trace):
    """By index of a free_requested event: the index of its free_completed, if it waits."""
    asked, waits = {}, {}
    for i, event in enumerate(trace):
        if event["action"] == "free_requested":
            asked[event["addr"]] = i
        elif event["action"] == "free_completed" and event["addr"] in asked:
            first = asked.pop(event["addr"])
            waits[first] = i if i > first + 1 else None
    return waits


def main():
    segments, trace = load(sys.argv[1])
    streams = {s: i for i, s in enumerate(sorted({s["stream"] for s in segments}))}
    places, end = Places(segments), blocks_at_end(segments)
    alive = blocks_at_start(end, trace)
    number = {}
    for s in segments:
        print("segment", streams[s["stream"]], s["total_size"])
    for address in sorted(alive):
        print("block", *places.of(address), alive[address])
        number[address] = len(number)
    count, waits, queue_ends = len(number), completions(trace), [-1] * QUEUES
    late = {until for until in waits.values() if until is not None}
    for i, event in enumerate(trace):
        address = event["addr"]
        if event["action"] == "alloc":
            print("alloc", streams[event["stream"]], event["size"], *places.of(address))
            number[address], count = count, count + 1
        elif event["action"] == "free_requested" and waits.get(i) is None:
            print("free", number[address])
        elif event["action"] == "free_requested":
            queue = next(q for q in range(QUEUES) if queue_ends[q] < waits[i])
            queue_ends[queue] = waits[i]
            print("free", number[address], queue)
        elif i in late:
            print("done", number[address])
    for address in sorted(end):
        print("end", number[address], end[address])


main()
