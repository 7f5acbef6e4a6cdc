#!/usr/bin/env python3
"""What Megatron-LM's ChunkedOptimizerStateOffloader issues in a step: its file, run on a stub of torch.

    python3 tests/peers/chunked_state_offload.py core/optimizer/cpu_offloading/chunked_optimizer_state_offload.py < jobs.json > orders.json

tests/data/chunked_state_offload.json has jobs with the orders that the file of branch dev (9050d4c5, #6244) issued: the output
for its own jobs. A job has the elements of each parameter, whether the optimizer is `aware` of precision, the `chunk_bytes` and
the `fraction`, whether the step is the `first`, and whether a checkpoint is `loaded` before it. Calls are those of training.py and
optimizer.py: offload_for_forward when a step begins, prefetch_for_step after the last backward, step; and of a distributed
checkpoint's loading, initialize_state_for_loading. Orders are lists of

    ["record", stream], ["wait", stream, event]     events are numbered as they are recorded
    ["d2h", state, parameter], ["h2d", state, parameter]
    ["alloc", state, parameter], ["window", elements], ["host_alloc", state, parameter]
    ["step", parameters], ["sync", stream]          the optimizer's step over that number; the host waits
"""

import sys
import types

from recorded_orders import on_stream, print_orders

LOG = []


class Type:
    def __init__(self, itemsize):
        self.itemsize = itemsize


class Device:
    def __init__(self, kind):
        self.type = kind


FP32, BF16, INT16 = Type(4), Type(2), Type(2)
CUDA, CPU = Device("cuda"), Device("cpu")


class Event:
    def record(self, stream):
        LOG.append(["record", stream.name])
        self.number = sum(entry[0] == "record" for entry in LOG) - 1


class Stream:
    current = None

    def __init__(self, name):
        self.name = name

    def wait_event(self, event):
        LOG.append(["wait", self.name, event.number])

    def wait_stream(self, other):
        event = Event()
        event.record(other)
        self.wait_event(event)

    def synchronize(self):
        LOG.append(["sync", self.name])


class Tensor:
    def __init__(self, key, elements, dtype=FP32, device=CUDA):
        self.key, self.elements, self.dtype, self.layout = key, elements, dtype, "strided"
        self.device, self.shape, self.own = device, (elements,), None

    @property
    def is_cuda(self):
        return self.data.device.type == "cuda"

    @property
    def data(self):
        return self if self.own is None else self.own

    @data.setter
    def data(self, to):
        self.own = to

    def numel(self):
        return self.elements

    def element_size(self):
        return self.dtype.itemsize

    def size(self):
        return self.shape

    def is_pinned(self):
        return not self.is_cuda

    def narrow(self, dimension, start, length):
        assert dimension == 0 and start + length <= self.elements
        return Tensor(None, length, self.dtype)

    def view(self, shape):
        assert shape == self.shape
        return self

    def record_stream(self, stream):
        assert stream is Stream.current

    def copy_(self, other, non_blocking=False):
        assert non_blocking and other.elements == self.elements
        if self.key is None:
            self.key = other.key
            if not self.is_cuda:
                LOG.append(["host_alloc", *self.key])
        LOG.append([Stream.current.name, *self.key])


def empty(size, dtype=None, layout=None, device=None, pin_memory=False):
    if pin_memory:
        return Tensor(None, size[0], dtype, CPU)
    LOG.append(["window", size])
    return Tensor(None, size, dtype)


def empty_like(tensor, device=None):
    LOG.append(["alloc", *tensor.key])
    return Tensor(tensor.key, tensor.elements, tensor.dtype)


class Adam:
    def __init__(self, params, aware):
        self.param_groups, self.state, self.master_weights = [{"params": params}], {}, aware

    def make_states(self, *_):
        params = [param for group in self.param_groups for param in group["params"]]
        names = ["exp_avg", "exp_avg_sq"] + (["master_param"] if self.master_weights else [])
        for param in params:
            if param in self.state:
                continue
            self.state[param] = {name: Tensor((name, param.key[1]), param.elements) for name in names}
            LOG.extend(["alloc", name, param.key[1]] for name in names)
        return len(params)

    def step(self):
        LOG.append(["step", self.make_states()])


def stub():
    torch = types.ModuleType("torch")
    torch.Tensor, torch.empty, torch.empty_like = Tensor, empty, empty_like
    torch.float32, torch.bfloat16, torch.int16 = FP32, BF16, INT16
    torch.no_grad = lambda: lambda function: function
    torch.cuda = types.SimpleNamespace(Stream=Stream, Event=Event, current_stream=lambda: Stream.current, stream=on_stream)
    for name in ("megatron", "megatron.core", "megatron.core.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["megatron.core.utils"].log_single_rank = lambda *arguments: None
    sys.modules["torch"] = torch


def order(module, job):
    Stream.current = Stream("compute")
    aware = job["aware"]
    params = [Tensor(("main_param", n), elements, BF16 if aware else FP32) for n, elements in enumerate(job["elements"])]
    offloader = module.ChunkedOptimizerStateOffloader(
        Adam(params, aware), [] if aware else params, job["chunk_bytes"], job["fraction"], (FP32, FP32),
        {param: FP32 for param in params} if aware else {}, Stream("d2h"), Stream("h2d"))
    LOG.clear()
    if job.get("loaded"):
        offloader.initialize_state_for_loading(Adam.make_states, None)
    for step in range(1 if job["first"] else 3):
        if step > 0:
            LOG.clear()
        offloader.offload_for_forward()
        offloader.prefetch_for_step()
        offloader.step()
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
