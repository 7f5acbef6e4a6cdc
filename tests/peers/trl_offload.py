#!/usr/bin/env python3
"""What TRL's OffloadActivations issues in a step, with its copying stream and without: its file, run on a stub of torch.

    python3 tests/peers/trl_offload.py trl/models/activation_offloading.py < jobs.json > orders.json

tests/data/trl_offload.json has jobs with the orders that the file of f2cd5771 issued: the output for its own jobs. A job has
`settings` of docs/examples/hf-layers.yaml, whether the engine has `streams`, the `stash` (max_fwd_stash_size), whether the
storages of parameters are `registered`, and a step as in saved_tensors.py. Orders are those of stub_torch.py, and

    ["clone", stream]     what the next copy takes is made contiguous

Compute's point is the number of kernels so far.
"""

import sys
import types

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Stream, module


class Storage:
    def __init__(self, number, elements, size):
        self.number, self.bytes, self._cdata = number, elements * size, number

    def data_ptr(self):
        return (1 + self.number) << 48  # apart, whatever is added

    def size(self):
        return self.bytes


class Tensor(stub_torch.Tensor):
    """A view of a storage."""

    def __init__(self, storage, shape, strides, offset, size, device="cuda"):
        elements = 1
        for each in shape:
            elements *= each
        super().__init__(elements, device)
        self.storage, self.shape, self.strides, self.offset, self.bytes = storage, tuple(shape), strides, offset, size

    def stride(self):
        return self.strides

    def storage_offset(self):
        return self.offset

    def element_size(self):
        return self.bytes

    def untyped_storage(self):
        return self.storage

    def is_contiguous(self):
        return self.strides == rows(self.shape)

    dtype = property(lambda self: self.bytes)

    def contiguous(self, **_):
        LOG.append(["clone", Stream.current.name])
        return Tensor(Storage(-1, self.elements, self.bytes), self.shape, rows(self.shape), 0, self.bytes)

    clone = contiguous

    def to(self, device, non_blocking):
        return empty_like(self, device=device).copy_(self, non_blocking)


class Parameter(Tensor):
    pass


def rows(shape):
    strides = []
    for size in reversed(shape):
        strides.insert(0, strides[0] * before if strides else 1)
        before = size
    return strides


def empty_like(tensor, device, **_):
    return Tensor(tensor.storage, tensor.shape, rows(tensor.shape), 0, tensor.bytes, device)


def empty(elements, dtype, device, **_):
    return Tensor(None, (elements,), [1], 0, dtype, device)


def as_strided(tensor, size, stride, storage_offset):
    made = Tensor(tensor.storage, size, stride, storage_offset, tensor.bytes)
    made.number = tensor.number
    return made


class Node:
    """An operator of backward."""

    current = None

    def __init__(self):
        self.hooks = []

    def register_hook(self, hook):
        self.hooks.append(hook)


class Callbacks:
    def __init__(self):
        self.waiting = []

    def queue_callback(self, call):
        self.waiting.append(call)


class Hooks:
    def __init__(self, pack, unpack):
        self.pack, self.unpack = pack, unpack

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


CALLBACKS = Callbacks()


def stub():
    torch = stub_torch.install()
    torch.Tensor, torch.empty, torch.empty_like, torch.as_strided = Tensor, empty, empty_like, as_strided
    torch.contiguous_format = None
    torch.nn.Parameter = Parameter
    torch._C = types.SimpleNamespace(_current_graph_task_id=lambda: 0, _current_autograd_node=lambda: Node.current,
                                     _storage_Use_Count=lambda storage: 1)
    torch.accelerator = types.SimpleNamespace(current_accelerator=lambda: stub_torch.Device("cuda"))
    module("torch.autograd.variable", Variable=types.SimpleNamespace(_execution_engine=CALLBACKS))
    sys.modules["torch.autograd.graph"].saved_tensors_hooks = Hooks
    module("torch.nn", Parameter=Parameter, Module=object)
    module("psutil", virtual_memory=lambda: types.SimpleNamespace(percent=0))
    for name in ("accelerate", "accelerate.utils", "transformers"):
        module(name)
    module("accelerate.logging", get_logger=lambda name: None)
    module("accelerate.utils.versions", is_torch_version=lambda *_: True)
    sys.modules["transformers"].is_torch_npu_available = lambda: False
    torch.distributed = types.SimpleNamespace(is_available=lambda: False)


def tensors_of(job):
    """The tensors that are saved; those of weights whose storages are the model's."""
    storages = {}
    for _, number, elements, first, shape, strides, size, what in job["saved"]:
        storage = storages.setdefault(number, Storage(number, elements, size))
        whole = what == "weight" and strides == rows(shape)
        yield (Parameter if whole else Tensor)(storage, shape, strides, first, size), what


def order(upstream, job):
    stub_torch.begin("d2h")
    CALLBACKS.waiting.clear()
    engine = upstream.OffloadActivations(use_streams=job["streams"], max_fwd_stash_size=job["stash"])
    if job["registered"]:
        engine.param_storages = {tensor.untyped_storage().data_ptr() for tensor, what in tensors_of(job) if what == "weight"}
    with engine:
        kept = []
        for (kernels, *_), (tensor, _) in zip(job["saved"], tensors_of(job)):
            Stream.compute.point = kernels
            kept.append(engine.pack(tensor))
        for begin, end, numbers in job["nodes"]:
            Stream.compute.point, Node.current = begin, Node()
            for number in numbers:
                engine.unpack(kept[number])
            Stream.compute.point = end
            for hook in Node.current.hooks:
                hook(None, None)
        for call in CALLBACKS.waiting:
            call()
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
