"""Offload system `planned` for PyTorch: saved tensors take at most `device_bytes` on the GPU.

    hooks = Planned(model, device_bytes)
    for batch in data:
        with hooks:                     # once for each micro-batch
            loss = model(batch)
        loss.backward()

The first micro-batch sends every large storage to the host; from then on the first ones leave, as few as it takes, but for
the last of them that fit beside the others. With `saved`, what `offsim plan --saved-tensors` printed, the same ones leave
from the first micro-batch on; a model that saves others ends with an error.
"""
import json
import math

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Piece:
    def __init__(self, storage):
        self.ref, self.bytes, self.unused = StorageWeakRef(storage), storage.nbytes(), 0
        self.device = self.host = self.copied = None


class Operators(TorchDispatchMode):
    """Numbers the operators of a forward, and knows which of them has made a storage."""

    def __init__(self, before):
        super().__init__()
        self.before = before

    def begin(self):
        self.count, self.makers, self.paused = 0, {}, False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.paused:
            return function(*args, **(kwargs or {}))
        self.count += 1
        self.before()
        results = function(*args, **(kwargs or {}))
        for storage in (t.untyped_storage() for t in tree_leaves(results) if isinstance(t, torch.Tensor)):
            if self.maker(storage) is None:
                self.makers[storage._cdata] = StorageWeakRef(storage), self.count
        return results

    def maker(self, storage):
        ref, number = self.makers.get(storage._cdata, (None, None))
        return None if ref is None or ref.expired() else number


class Planned(saved_tensors_hooks):
    def __init__(self, model, device_bytes, min_elements=1 << 20, saved=None):
        super().__init__(self.pack, self.unpack)
        rows = json.load(open(saved))["ranks"][0]["saved"] if saved else []
        self.expected = [r for r in rows if r["action"] != "recompute" and math.prod(r["shape"]) >= min_elements]
        self.level, self.min_elements, self.pieces, self.new = device_bytes, min_elements, None, []
        self.parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.out, self.back = torch.cuda.Stream(), torch.cuda.Stream()
        self.operators = Operators(self.make_room_for_next)

    def choose_leaving(self):
        """By piece; None: not known yet, all."""
        if self.expected:
            return [row["action"] == "offload" for row in self.expected]
        if self.pieces is None:
            return None
        sizes = [p.bytes for p in self.pieces]
        free, count = self.level - sum(sizes), 0
        while free < 0:
            free, count = free + sizes[count], count + 1
        leaving = [k < count for k in range(len(sizes))]
        for k in reversed(range(count)):
            leaving[k] = sizes[k] > free
            free -= 0 if leaving[k] else sizes[k]
        return leaving

    def leaves(self, k):
        return self.leaving is None or k < len(self.leaving) and self.leaving[k]

    def __enter__(self):
        self.leaving = self.choose_leaving()
        self.pieces, self.on_device, self.away = [], 0, 0
        self.known, self.new = self.new, []  # by piece: the operator that makes it, and its bytes
        self.operators.begin()
        self.operators.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.operators.__exit__(*error)

    def pack(self, t):
        self.operators.paused = True
        packed = self.packed(t)
        self.make_room_for_next()
        self.operators.paused = False
        return packed

    def packed(self, t):
        storage = t.untyped_storage()
        if not t.is_cuda or t.numel() < self.min_elements or storage.data_ptr() in self.parameters:
            return t
        piece = next((p for p in self.pieces if p.ref.cdata == storage._cdata and not p.ref.expired()), None)
        if piece is None:
            piece = self.save(storage)
        piece.unused += 1
        layout = (t.dtype, t.storage_offset(), t.size(), t.stride())
        return piece, layout, None if piece.host is not None else t

    def save(self, storage):
        piece, number = Piece(storage), len(self.pieces)
        if self.expected and any(self.leaving[number:]) and self.expected[number]["bytes"] != piece.bytes:
            raise ValueError(f"the model saves {piece.bytes} bytes where offsim has {self.expected[number]}")
        self.pieces.append(piece)
        self.new.append((self.operators.maker(storage) or 0, piece.bytes))
        self.on_device += piece.bytes
        if self.leaves(number):
            piece.device = torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage)
            piece.host = torch.empty(piece.bytes, dtype=torch.uint8, pin_memory=True)
            piece.copied = self.copy(self.out, piece.host, piece.device)
        return piece

    def make_room_for_next(self):  # once the operator runs that makes it, as the micro-batch before tells
        maker, size = self.known[len(self.pieces)] if len(self.pieces) < len(self.known) else (0, 0)
        if maker > self.operators.count:
            return
        while self.on_device + size > self.level and self.away < len(self.pieces):
            piece, self.away = self.pieces[self.away], self.away + 1
            if piece.host is not None:
                torch.cuda.current_stream().wait_event(piece.copied)
                piece.device = None
                self.on_device -= piece.bytes

    def copy(self, stream, to, source):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)
        return stream.record_event()

    def bring_back(self, piece):
        piece.device = torch.empty(piece.bytes, dtype=torch.uint8, device="cuda")
        piece.copied = self.copy(self.back, piece.device, piece.host)
        self.on_device += piece.bytes

    def fetch(self):
        while self.away > 0:
            piece = self.pieces[self.away - 1]
            if piece.host is not None and piece.device is None and piece.unused > 0:
                if self.on_device + piece.bytes > self.level:
                    return
                self.bring_back(piece)
            self.away -= 1

    def unpack(self, packed):
        self.fetch()  # not in `used`: autograd frees the gradients that an operator was given after its hooks
        if isinstance(packed, torch.Tensor):
            return packed
        piece, (dtype, *view), t = packed
        torch._C._current_autograd_node().register_hook(lambda *_: self.used(piece))
        if piece.host is None:
            return t
        if piece.device is None:
            self.bring_back(piece)
        torch.cuda.current_stream().wait_event(piece.copied)
        return torch.empty(0, dtype=dtype, device="cuda").set_(piece.device.untyped_storage(), *view)

    def used(self, piece):
        piece.unused -= 1
        if piece.unused == 0:
            piece.device, self.on_device = None, self.on_device - piece.bytes
