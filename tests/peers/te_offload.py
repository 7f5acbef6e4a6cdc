#!/usr/bin/env python3
"""What Transformer Engine's two engines for offloading layers issue in a step: their files, run on a stub of torch.

    python3 tests/peers/te_offload.py transformer_engine/pytorch/cpu_offload.py < jobs.json > orders.json

tests/data/te_offload.json has jobs with the orders that the files of d0067d0d issued, cpu_offload_v1.py being beside
cpu_offload.py: the output for its own jobs. A job has the engine's `version`, the number of `layers` and of `micro_batches`. The
first layers leave, as many as are `offloaded`; version 1 may have two sets of buffers to reload into (`double`). Or a script calls version 2 by hand: the
layers in `offloaded` leave, their memory is `released` that many layers later, and they come back that many `ahead`. Orders are
those of stub_torch.py, of the second step. A label is [number of the copy out, elements], and with sets of buffers the number of
the one that a copy back fills. Compute's point is the number of layers begun, backward's after forward's, and for version 2 also
how many of the tensors that leave are made.
"""

import pathlib
import sys
import types

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Stream, Tensor, module

# What Transformer Engine's operators of a layer save, in elements by name.
ELEMENTS = {"input": 1 << 27, "normed": 1 << 27, "rstd": 1 << 14, "query": 1 << 27, "key": 1 << 24, "value": 1 << 24,
            "attention": 1 << 27, "logsumexp": 1 << 20, "rng": 2, "sum": 1 << 27, "normed2": 1 << 27, "rstd2": 1 << 14,
            "fc1": 56 << 24, "activation": 56 << 23}
OPERATORS = [["input", "normed", "rstd"], ["query", "key", "value", "attention", "logsumexp", "rng"], ["attention"],
             ["sum", "normed2", "rstd2"], ["fc1"], ["activation"]]
# How many of the large ones are made when a tensor is announced (start_offload) or saved. An operator announces what it is given
# before it runs, and saves what it made when it has run.
MADE = {"input": 1, "normed": 2, "query": 5, "key": 5, "value": 5, "attention": 7, "logsumexp": 7, "sum": 8, "normed2": 10,
        "fc1": 11, "activation": 11}
ANNOUNCED = ("input", "query", "key", "value", "sum")


def stub():
    stub_torch.install()
    for name in ("transformer_engine", "transformer_engine.debug", "transformer_engine.debug.pytorch",
                 "transformer_engine.pytorch", "transformer_engine.pytorch.tensor"):
        module(name)
    quantized = type("QuantizedTensorStorage", (), {})
    module("transformer_engine.debug.pytorch.debug_state", TEDebugState=types.SimpleNamespace(debug_enabled=False))
    module("transformer_engine.pytorch.tensor.float8_tensor", Float8Tensor=quantized)
    module("transformer_engine.pytorch.quantized_tensor", QuantizedTensorStorage=quantized, QuantizedTensor=quantized,
           prepare_for_saving=lambda *tensors: (list(tensors), None), restore_from_saved=lambda *_: None)
    first = module("transformer_engine.pytorch.cpu_offload_v1")
    first.__package__ = "transformer_engine.pytorch"
    path = pathlib.Path(sys.argv[1]).with_name("cpu_offload_v1.py")
    exec(compile(path.read_text(), path, "exec"), first.__dict__)


class Layers:
    """What operators save and take, layer by layer."""

    def __init__(self, save, take, announce=lambda tensor: None):
        self.save, self.take, self.announce = save, take, announce
        self.kept, self.begun, self.made = {}, 0, 0

    def forward(self, layer, leaves):
        tensors = {name: Tensor((elements,)) for name, elements in ELEMENTS.items()}
        for i, operator in enumerate(OPERATORS):
            for name in operator:
                Stream.compute.point = [self.begun, self.made + MADE.get(name, 0)]
                if name in ANNOUNCED:
                    self.announce(tensors[name])
            self.begun += i == 0
            self.kept[layer, i] = []
            for name in operator:
                Stream.compute.point = [self.begun, self.made + MADE.get(name, 0)]
                self.kept[layer, i].append(self.save(tensors[name]))
        self.made += leaves * max(MADE.values())
        Stream.compute.point = [self.begun, self.made]

    def backward(self, layer):
        self.begun += 1
        Stream.compute.point = [self.begun, self.made]
        for i in reversed(range(len(OPERATORS))):
            for kept in self.kept.pop((layer, i)):
                self.take(kept)


def begin_step(*streams):
    LOG.clear()
    Stream.compute.point = [0, 0]
    for stream in streams:
        stream.point = 0


def version_1(job):
    upstream = sys.modules["transformer_engine.pytorch.cpu_offload_v1"]
    stub_torch.begin("d2h", "h2d")
    hooks, _ = upstream.get_cpu_offload_context(True, job["offloaded"], job["layers"], double_buffering=job["double"])
    handler = hooks.offload_handler

    def save(tensor):
        upstream.mark_activation_offload(tensor)
        return hooks.on_save_for_backward(tensor)

    for _ in range(2):
        begin_step(handler.d2h_stream, handler.h2d_stream)
        layers = Layers(save, hooks.on_get_saved_tensor)
        for _ in range(job["micro_batches"]):
            for layer in range(job["layers"]):
                layers.forward(layer, False)
                handler.on_group_commit_forward()
            for i, buffer in enumerate(sum(handler.reload_double_buffer, [])):
                if job["double"]:
                    buffer.place = i
            for layer in reversed(range(job["layers"])):
                handler.on_group_commit_backward()
                layers.backward(layer)


class Script:
    """Calls version 2 by hand."""

    def __init__(self, job, control):
        self.job, self.control, self.last = job, control, job["layers"] - 1

    def after_forward(self, layer):
        if layer in self.job["offloaded"]:
            self.control.start_offload_layer(layer)
        first = layer - self.job["released"]
        for each in range(max(first, 0), (self.last if layer == self.last else first) + 1):
            if each in self.job["offloaded"]:
                self.control.release_activation_forward_gpu_memory(each)

    def before_backward(self, layer):
        for ahead in range(0 if layer == self.last else self.job["ahead"], self.job["ahead"] + 1):
            if layer - ahead in self.job["offloaded"]:
                self.control.start_reload_layer(layer - ahead)


def micro_batch(job, engine, script, layers):
    for layer in range(job["layers"]):
        engine.fwd_step()
        layers.forward(layer, layer in job["offloaded"] if script else layer < job["offloaded"])
        if script:
            script.after_forward(layer)
    for layer in reversed(range(job["layers"])):
        engine.bwd_step(layer)
        if script:
            script.before_backward(layer)
        layers.backward(layer)
    engine.finish_part_of_bwd()


def version_2(upstream, job):
    manual = isinstance(job["offloaded"], list)
    stub_torch.begin("d2h")
    context, *_ = upstream.get_cpu_offload_context(True, None if manual else job["offloaded"], job["layers"],
                                                   manual_synchronization=manual)
    engine = context.offload_synchronizer
    script = Script(job, engine) if manual else None
    for _ in range(2):
        begin_step(engine.offload_stream)
        layers = Layers(engine.push_tensor, engine.pop_tensor, upstream.start_offload)
        for _ in range(job["micro_batches"]):
            micro_batch(job, engine, script, layers)


def order(upstream, job):
    if job["version"] == 1:
        version_1(job)
    else:
        version_2(upstream, job)
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order, "transformer_engine.pytorch.")
