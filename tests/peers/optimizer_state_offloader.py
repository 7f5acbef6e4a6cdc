#!/usr/bin/env python3
"""What Megatron-LM's OptimizerStateOffloader issues in a step: its file, run on a stub of torch.

    python3 tests/peers/optimizer_state_offloader.py core/optimizer/cpu_offloading/optimizer_state_offloader.py < jobs.json > orders.json

tests/data/optimizer_state_offloader.json has jobs with the orders that the file of branch dev (0a2e01fd, as in 26.04-alpha's
0fcbc3db) issued: the output for its own jobs. A job has the number of `parameters`, which are `aware` of precision or not, and
whether it is the `first` step. Calls are those of training.py and distrib_optimizer.py: offload and release when a step begins,
reload after the last backward, sync_before_step before the optimizer's. Orders are lists of

    ["join", waiting, on]            a stream waits for what another one was given so far
    ["d2h", state, parameter], ["h2d", state, parameter], ["free", state, parameter], ["alloc", state, parameter]
    ["mark", state, parameter]       record_stream: the copying stream uses the storage
"""

import sys
import types

from recorded_orders import on_stream, print_orders

LOG = []


class Stream:
    current = None

    def __init__(self, name=None):
        self.name = name or ("d2h", "h2d")[Stream.made]
        Stream.made += 1

    made = 0

    def wait_stream(self, other):
        LOG.append(["join", self.name, other.name])


class Storage:
    def __init__(self, tensor):
        self.tensor, self.bytes = tensor, 4

    def size(self):
        return self.bytes

    def resize_(self, size):
        LOG.append(["alloc" if size else "free", *self.tensor.key])
        self.bytes = size


class Tensor:
    def __init__(self, key=None, is_cuda=True):
        self.key, self.is_cuda, self.dtype, self.layout = key, is_cuda, "fp32", "strided"
        self.storage = Storage(self)

    def size(self):
        return (1,)

    def is_pinned(self):
        return not self.is_cuda

    def untyped_storage(self):
        return self.storage

    def record_stream(self, stream):
        LOG.append(["mark", *self.key])

    def copy_(self, other, non_blocking=False):
        assert non_blocking and Stream.current.name == ("d2h" if other.is_cuda else "h2d")
        LOG.append([Stream.current.name, *(other.key or self.key)])


class FusedAdam:
    def __init__(self, master_weights):
        self.master_weights, self.state = master_weights, {}


def stub():
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch.empty = lambda size, dtype, layout, device, pin_memory: Tensor(is_cuda=False)
    torch.cuda = types.SimpleNamespace(Stream=Stream, current_stream=lambda: Stream.current, stream=on_stream)
    sys.modules["torch"] = torch
    for name in ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.optimizers"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["transformer_engine.pytorch.optimizers"].FusedAdam = FusedAdam


def order(module, job):
    Stream.made = 0
    Stream.current = Stream("compute")
    Stream.made = 0
    adam = FusedAdam(job["aware"])
    numbers = range(job["parameters"])
    mains = [] if job["aware"] else [Tensor(("main_param", n)) for n in numbers]
    distributed = types.SimpleNamespace(optimizer=adam, shard_fp32_from_float16_groups=[mains])
    offloader = module.OptimizerStateOffloader(distributed)
    if not job["first"]:
        names = ["exp_avg", "exp_avg_sq"] + (["master_param"] if job["aware"] else [])
        adam.state = {f"parameter {n}": {name: Tensor((name, n)) for name in names} for n in numbers}
        offloader.mark_optimizer_states_initialized()
    LOG.clear()
    offloader.offload()
    offloader.release_gpu_memory()
    offloader.reload()
    offloader.sync_before_step()
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
