#!/usr/bin/env python3
"""What TRL's OffloadActivations issues in a step, with its copying stream and without: its file, run on a stub of torch.

    python3 tests/peers/trl_offload.py trl/models/activation_offloading.py < jobs.json > orders.json

tests/data/trl_offload.json has jobs with the orders that the file of f2cd5771 issued: the output for its own jobs. A job has
`settings` of docs/examples/hf-layers.yaml, whether the engine has `streams`, the `stash` (max_fwd_stash_size), whether the
storages of parameters are `registered`, and a step (tests/plans/saved_tensors.py). Orders are those of stub_torch.py; compute's
point is the number of kernels so far.
"""

import sys
import types

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Parameter, Stream, module, storages_of_weights, tensors_of


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


CALLBACKS = Callbacks()


def stub():
    torch = stub_torch.install()
    torch._C = types.SimpleNamespace(_current_graph_task_id=lambda: 0, _current_autograd_node=lambda: Node.current,
                                     _storage_Use_Count=lambda storage: 1)
    torch.accelerator = types.SimpleNamespace(current_accelerator=lambda: stub_torch.Device("cuda"))
    module("torch.autograd.variable", Variable=types.SimpleNamespace(_execution_engine=CALLBACKS))
    module("torch.nn", Parameter=Parameter, Module=object)
    module("psutil", virtual_memory=lambda: types.SimpleNamespace(percent=0))
    for name in ("accelerate", "accelerate.utils", "transformers"):
        module(name)
    module("accelerate.logging", get_logger=lambda name: None)
    module("accelerate.utils.versions", is_torch_version=lambda *_: True)
    sys.modules["transformers"].is_torch_npu_available = lambda: False
    torch.distributed = types.SimpleNamespace(is_available=lambda: False)


def order(upstream, job):
    stub_torch.begin("d2h")
    CALLBACKS.waiting.clear()
    engine = upstream.OffloadActivations(use_streams=job["streams"], max_fwd_stash_size=job["stash"])
    if job["registered"]:
        engine.param_storages = storages_of_weights(job)
    with engine:
        kept = []
        for (kernels, *_), tensor in zip(job["saved"], tensors_of(job)):
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
