#!/usr/bin/env python3
"""What Megatron-LM's HybridDeviceOptimizer issues in a step: its file, run on a stub of torch.

    python3 tests/peers/hybrid_optimizer.py core/optimizer/cpu_offloading/hybrid_optimizer.py < jobs.json > orders.json

tests/data/hybrid_optimizer.json has jobs with the orders that the file of Megatron-LM d98e8a64 issued: the output for its own
jobs. A job has `groups` of parameters by their number of elements, `fraction`, `overlap`, and `bf16_gradients`. Parameters are
numbered through all groups. Orders are lists of

    ["d2h", stream, parameter]      its gradient goes to the host; before, ["cast", ...] of a gradient that has 16 bits
    ["h2d", stream, parameter]      the main parameter comes back, ["cast", ...] follows
    ["cast", stream, parameter]     main parameter to weight, or gradient to fp32
    ["join", waiting, on]           a stream waits for what another one was given so far
    ["step", "device", [parameters]], ["step", "host", [parameters]]
    ["host waits", parameters]      for the copies of these gradients
"""

import contextlib
import sys
import types

from recorded_orders import print_orders

LOG = []


class Stream:
    current = None

    def __init__(self, name="d2h"):
        self.name = name if Stream.current is None else ("d2h", "h2d")[Stream.made]
        Stream.made += 1

    made = -1

    def record_event(self):
        gradients = [e[2] for e in LOG[Event.since:] if e[0] == "d2h"]
        Event.since = len(LOG)
        return Event(self, gradients)

    def wait_stream(self, other):
        if other is not self:
            LOG.append(["join", self.name, other.name])


class Event:
    since = 0

    def __init__(self, stream, gradients):
        self.stream, self.gradients = stream, gradients

    def synchronize(self):
        LOG.append(["host waits", self.gradients])

    def wait(self, stream):
        stream.wait_stream(self.stream)


class Tensor:
    def __init__(self, number, elements, dtype, is_cuda=True, gradient=False):
        self.number, self.elements, self.dtype, self.is_cuda, self.gradient = number, elements, dtype, is_cuda, gradient
        self.grad, self.requires_grad, self.shape = None, True, (elements,)

    data = property(lambda self: self)

    def numel(self):
        return self.elements

    def like(self, **changed):
        return Tensor(**{"number": self.number, "elements": self.elements, "dtype": self.dtype, "is_cuda": self.is_cuda,
                         "gradient": self.gradient, **changed})

    detach = clone = pin_memory = like

    def cpu(self):
        return self.like(is_cuda=False)

    def float(self):
        return self.like(dtype="fp32")

    def to(self, dtype):
        if dtype != self.dtype:
            LOG.append(["cast", Stream.current.name, self.number])
        return self if dtype == self.dtype else self.like(dtype=dtype)

    # PyTorch's copy kernel casts on the device if the copy does not block.
    def copy_(self, other, non_blocking=False):
        stream = Stream.current.name
        cast = [["cast", stream, other.number]] if self.dtype != other.dtype else []
        if self.is_cuda == other.is_cuda:
            LOG.append(["cast", stream, other.number])
        elif other.is_cuda:
            LOG.extend([*cast, ["d2h", stream, other.number]])
        else:
            LOG.extend([["h2d", stream, other.number], *cast])


class Optimizer:
    side = None

    def __init__(self, params, defaults=None):
        self.param_groups = [dict(g) for g in params]
        self.defaults, self.state, self.hooks = defaults or {}, {}, []

    def register_step_post_hook(self, hook):
        self.hooks.append(hook)

    def register_load_state_dict_pre_hook(self, hook):
        pass

    register_load_state_dict_post_hook = register_load_state_dict_pre_hook

    def step(self, closure=None):
        for group in self.param_groups if self.side == "device" else [None]:
            groups = self.param_groups if group is None else [group]
            LOG.append(["step", self.side, [p.number for g in groups for p in g["params"]]])
        for hook in self.hooks:
            hook(self, (), {})


class OnDevice(Optimizer):
    side = "device"


class OnHost(Optimizer):
    side = "host"


@contextlib.contextmanager
def on_stream(stream):
    before, Stream.current = Stream.current, stream
    yield
    Stream.current = before


def stub():
    torch = types.ModuleType("torch")
    torch.Tensor, torch.float32 = Tensor, "fp32"
    torch.empty = lambda shape, dtype, pin_memory, device: Tensor(None, shape[0], dtype, is_cuda=False)
    torch.optim = types.SimpleNamespace(Optimizer=Optimizer)
    torch.cuda = types.SimpleNamespace(Stream=Stream, current_stream=lambda: Stream.current, stream=on_stream)
    return torch


def order(module, job):
    Stream.current, Stream.made, number = None, -1, 0
    Stream.current = Stream("compute")
    groups = []
    for group in job["groups"]:
        params = []
        for elements in group:
            p = Tensor(number, elements, "bf16")
            p.decoupled_grad = Tensor(number, elements, "bf16" if job["bf16_gradients"] else "fp32", gradient=True)
            params.append(p)
            number += 1
        groups.append({"params": params})
    made = module.HybridDeviceOptimizer(groups, offload_fraction=job["fraction"], cpu_optimizer_cls=OnHost,
                                        gpu_optimizer_cls=OnDevice, param_update_in_fp32=True,
                                        overlap_cpu_optimizer_d2h_h2d=job["overlap"])
    LOG.clear()
    Event.since = 0
    made.step()
    return list(LOG)


if __name__ == "__main__":
    sys.modules["torch"] = stub()
    print_orders(order)
