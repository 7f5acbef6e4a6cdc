"""What a step saves and takes, for peers that run upstream's saved-tensor hooks on a stub of torch (tests/peers), in the order of a
plan of save_on_cpu, which copies each tensor when it is packed and back when it is unpacked.

`saved` are the packed tensors: [kernels so far, storage, its elements, first element, sizes, strides, bytes of an element, what the
storage is]. Storages are numbered as they are packed first; one is a "weight", or "saved". `nodes` are backward's operators that take
some: [kernels when it begins, when it ends, the numbers of the saved tensors]. `layers` are [first kernel, first one after it] of
each layer's forward, whose last kernel saves nothing.

    offsim plan SCENARIO --set system=save_on_cpu | python3 tests/plans/saved_tensors.py     prints all
"""

import json
import math
import re
import sys

LINE = re.compile(r"(?:  )?(\w+) +(\w+) +(.*)")  # of an op, or of what follows: "forward m0 c0"
MADE = re.compile(r"(%\d+) (\S+) (\w+)\[([\d,]+)\] ")
VIEW = re.compile(r"(%\d+)(?:\{(\w+)\+(\d+):([\dx]+)(?:/([\dx]+))?\})?")
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "i64": 8, "i32": 4, "u8": 1, "fp64": 8}


def rows(sizes):
    """Strides of a contiguous tensor."""
    return [math.prod(sizes[i + 1:]) for i in range(len(sizes))]


def lines_of(text):
    """(kind, stream, rest) of each line; and the numbers of those that are kernels which only gather what the next copy out takes."""
    lines = [found.groups() for found in map(LINE.match, text.splitlines()) if found]
    gathers, last = set(), None
    for i, (kind, _, rest) in enumerate(lines):
        if kind == "d2h" and last is not None and lines[last][2].split(" -> ")[1].split()[0] == rest.split()[0]:
            gathers.add(last)
        if kind in ("kernel", "d2h", "h2d"):
            last = i if kind == "kernel" and rest.startswith("copy ") else None
    return lines, gathers


class Saved:
    def __init__(self, text):
        self.saved, self.nodes, self.layers = [], [], {}
        self.kernels, self.made, self.storages, self.number, self.open = 0, {}, {}, {}, {}
        self.lines, self.gathers = lines_of(text)
        for i, (kind, stream, rest) in enumerate(self.lines):
            self.read(i, kind, rest)

    def read(self, i, kind, rest):
        if kind in ("resident", "alloc", "host_alloc"):
            name, what, dtype, sizes = MADE.match(rest).groups()
            self.made[name] = (dtype, [int(size) for size in sizes.split(",")], kind == "resident")
        elif kind == "kernel":
            layer = re.search(r" @ layer (\d+) ", rest)
            if layer and not self.nodes:
                self.layers.setdefault(int(layer[1]), [self.kernels, None])[1] = self.kernels + 1
            self.kernels += i not in self.gathers
        elif kind == "d2h":
            self.pack(i, *rest.split()[:3:2])
        elif kind == "h2d":
            self.unpack(*rest.split()[:3:2])
        elif kind == "free" and rest.split()[0] in self.open:
            self.open.pop(rest.split()[0])[1] = self.kernels

    def pack(self, i, source, host):
        before = max((g for g in self.gathers if g < i), default=None)
        if before is not None and self.lines[before][2].split(" -> ")[1].split()[0] == source:
            source = self.lines[before][2].split(" bytes ")[1].split()[0]
        name, dtype, first, sizes, strides = VIEW.match(source).groups()
        whole = self.made[name]
        dtype = dtype or whole[0]
        sizes = [int(size) for size in sizes.split("x")] if sizes else whole[1]
        strides = [int(size) for size in strides.split("x")] if strides else rows(sizes)
        self.number[host] = len(self.saved)
        self.saved.append([self.kernels, self.storages.setdefault(name, len(self.storages)),
                           math.prod(whole[1]) * BYTES[whole[0]] // BYTES[dtype], int(first or 0), sizes, strides, BYTES[dtype],
                           "weight" if whole[2] else "saved"])

    def unpack(self, host, device):
        if not self.nodes or self.nodes[-1][0] != self.kernels:
            self.nodes.append([self.kernels, None, []])
        self.nodes[-1][2].append(self.number[host])
        self.open[device] = self.nodes[-1]


def steps_of(text):
    found = Saved(text)
    return {"saved": found.saved, "nodes": found.nodes, "layers": list(found.layers.values())}


if __name__ == "__main__":
    print(json.dumps(steps_of(sys.stdin.read())))
