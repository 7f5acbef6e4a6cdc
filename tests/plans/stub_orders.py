"""The copies and waits of a plan's step in the form of tests/peers/stub_torch.py."""

import math
import re

from saved_tensors import lines_of

SHAPE = re.compile(r"\[([\d,]+)\]")


class Reader:
    """Reads a step's lines. A subclass says how far compute is, from the kernels that it is shown."""

    copying = ("d2h", "h2d")

    def __init__(self, text):
        self.events, self.recorded, self.elements = [], {}, {}
        self.copies, self.number, self.sources = {}, {}, {}  # number: by host buffer; sources: device buffers copied out
        self.lasting = []  # device buffers that stay, to copy back into
        lines, gathers = lines_of(text)
        for kind, _, rest in lines:
            if kind == "d2h":
                self.sources.setdefault(rest.split()[0].split("{")[0], len(self.sources))
        for i, (kind, stream, rest) in enumerate(lines):
            if i in gathers:
                self.events.append(["clone", stream])
            else:
                self.read(kind, stream, rest, rest.split())

    def read(self, kind, stream, rest, words):
        if kind in ("alloc", "host_alloc", "resident"):
            self.elements[words[0]] = math.prod(int(size) for size in SHAPE.search(rest)[1].split(","))
            if kind == "resident" and " bytes reload" in rest:
                self.lasting.append(words[0])
        elif kind in ("forward", "backward"):
            self.begin_pass()
        elif kind == "kernel":
            self.kernel(stream, rest)
        elif kind == "record":
            self.recorded[words[0]] = (stream, self.copies.get(stream, 0) if stream in self.copying else self.point())
        elif kind == "wait" and {stream, self.recorded[words[0]][0]} <= {"compute", *self.copying}:
            self.events.append(["wait", stream, *self.recorded[words[0]]])
        elif kind == "host_wait":
            stream, point = self.recorded[words[0]]
            self.events.append(["sync", stream] + ([point] if stream in self.copying else []))
        elif kind in ("d2h", "h2d"):
            self.copy(kind, stream, words[0].split("{")[0], words[2].split("{")[0])

    def begin_pass(self):
        pass

    def copy(self, kind, stream, source, destination):
        host = destination if kind == "d2h" else source
        if kind == "d2h":
            self.number[host] = len(self.number)
        self.copies[stream] = self.copies.get(stream, 0) + 1
        self.events.append([kind, stream, self.number[host], self.elements[host],
                            *([self.lasting.index(destination)] if destination in self.lasting else [])])


class LayerReader(Reader):
    """Compute's point: the layers begun, backward's after forward's."""

    layer, begun = None, 0

    def begin_pass(self):
        self.layer = None

    def kernel(self, stream, rest):
        layer = re.search(r" @ layer (\d+) ", rest)
        if layer and layer[1] != self.layer and stream == "compute":
            self.begun += 1
        if stream == "compute":
            self.layer = layer and layer[1]

    def point(self):
        return self.begun


class KernelReader(Reader):
    """Compute's point: the kernels so far."""

    kernels = 0

    def kernel(self, stream, rest):
        self.kernels += stream == "compute"

    def point(self):
        return self.kernels
