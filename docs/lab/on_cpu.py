"""What the lab uses of torch.cuda, without a GPU.

Ops run at once, one after another, so results are right even if a program leaves out a wait or mark. But a record is written
of what a GPU would have been given (docs/reference/issued.md), in which `offsim check` finds each wait and mark that is
missing. Memory has made-up addresses from a small caching allocator. To it, no copy is ever over: it uses a block again that
has no mark, and none that has one.
"""

import contextlib
import pickle
import struct
import traceback
from unittest import mock

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

END, NAME, STREAM, KERNEL, COPY, RECORD, WAIT, ALLOC, BLOCK, BLOCK_FREE, SNAPSHOT = 2, 3, 4, 5, 6, 10, 11, 16, 18, 19, 20
DEVICE, HOST = 0, 1  # spaces of memory, as the record numbers them
BEGIN, SPACE_BYTES = [1 << 44, 1 << 45], 1 << 40
SNAPSHOT_BYTES = 32768  # of a row


class Stream:
    def __init__(self):
        self.number, self.free = len(streams), {}  # freed blocks by size
        streams.append(self)
        record.row(STREAM, self.number, 1, 0)

    def record_event(self):
        record.event_count += 1
        record.row(RECORD, self.number, record.event_count)
        return record.event_count

    def wait_event(self, event):
        record.row(WAIT, self.number, event)


def current_stream():
    return streams[record.current]


@contextlib.contextmanager
def stream(inner):
    outer, record.current = record.current, inner.number
    yield
    record.current = outer


class Block:
    """Memory of a storage."""

    def __init__(self, storage, space):
        self.bytes, self.space, self.stream = -(-storage.nbytes() // 512) * 512, space, current_stream()
        self.storage, self.has_mark = StorageWeakRef(storage), False
        free = self.stream.free.get(self.bytes)
        if space == DEVICE and free:
            self.address = free.pop()
        else:
            self.address = record.end[space]
            record.end[space] += self.bytes


class Record:
    def __init__(self):
        self.rows, self.names, self.history = [b"offsim issued 1\n"], {}, []
        self.event_count = self.current = self.live_bytes = self.peak_bytes = 0
        self.end, self.blocks = list(BEGIN), {}  # the first address that is not used yet, by space; blocks by storage

    def row(self, kind, *words, text=b""):
        body = struct.pack(f"<{len(words)}Q", *words) + text
        body += bytes(-len(body) % 16)
        self.rows.append(struct.pack("<BBHIQ", kind, 0, 0, len(body) // 8, len(self.rows)) + body)

    def note(self, action, block):
        """A line of PyTorch's memory history."""
        frames = [{"filename": frame.filename, "line": frame.lineno, "name": frame.name}
                  for frame in reversed(traceback.extract_stack()) if frame.filename != __file__]
        self.history.append({"action": action, "addr": block.address, "size": block.bytes, "time_us": len(self.history),
                             "stream": block.stream.number, "frames": frames})
        self.live_bytes += block.bytes if action == "alloc" else -block.bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def block_of(self, tensor, space=DEVICE):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.blocks:
            self.blocks[storage._cdata] = block = Block(storage, space)
            if space == DEVICE:
                self.row(BLOCK, block.address)
                self.note("alloc", block)
        return self.blocks[storage._cdata]

    def address_of(self, tensor):
        return self.block_of(tensor).address + tensor.storage_offset() * tensor.itemsize

    def take_back(self):
        """Blocks whose storages are gone."""
        for key, block in list(self.blocks.items()):
            if block.storage.expired():
                del self.blocks[key]
                if block.space == DEVICE:
                    self.row(BLOCK_FREE, block.address)
                    self.note("free_completed", block)
                    if not block.has_mark:
                        block.stream.free.setdefault(block.bytes, []).append(block.address)

    def op(self, name, inputs, outputs):
        if name == "copy_" and {self.block_of(inputs[0]).space, self.block_of(inputs[1]).space} == {DEVICE, HOST}:
            to, source = inputs[:2]
            self.row(COPY, self.current, self.address_of(to), self.address_of(source), to.nbytes, 1, to.nbytes, to.nbytes)
            return
        if name not in self.names:
            self.names[name] = len(self.names)
            self.row(NAME, self.names[name], text=name.encode())
        self.row(KERNEL, self.current, self.names[name], *(self.address_of(tensor) for tensor in inputs + outputs))

    def write(self, path):
        snapshot = pickle.dumps({"segments": [], "device_traces": [self.history]}, protocol=2)
        for begin in range(0, len(snapshot), SNAPSHOT_BYTES):
            part = snapshot[begin:begin + SNAPSHOT_BYTES]
            self.row(SNAPSHOT, len(part), text=part)
        self.row(END)
        with open(path, "wb") as file:
            file.write(b"".join(self.rows))


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        space = HOST if kwargs.pop("pin_memory", False) else DEVICE
        record.take_back()
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        before = {record.block_of(tensor) for tensor in inputs}
        result = function(*args, **kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        name = function.overloadpacket.__name__
        is_view = {record.block_of(tensor, space) for tensor in outputs} <= before and not function._schema.is_mutable
        if not is_view and not name.startswith("empty"):
            record.op(name, inputs, outputs)
        return result


def mark(tensor, stream):
    if stream is not record.block_of(tensor).stream:
        record.block_of(tensor).has_mark = True


@contextlib.contextmanager
def recording(path):
    """Watches what is inside; `path`: the record's file, None: none."""
    with mock.patch.object(torch.Tensor, "record_stream", mark), Watch():
        yield
    if path is not None:
        record.write(path)


def reset_peak_memory_stats():
    record.peak_bytes = record.live_bytes


def max_memory_allocated():
    return record.peak_bytes


record, streams = Record(), []
for space in (DEVICE, HOST):
    record.row(ALLOC, BEGIN[space], SPACE_BYTES, space)
Stream()
