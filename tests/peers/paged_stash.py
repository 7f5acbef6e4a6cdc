#!/usr/bin/env python3
"""What Megatron-LM's paged stash issues in a step: the schedule of its file, run on a stub of torch.

    python3 tests/peers/paged_stash.py core/transformer/moe/paged_stash.py < jobs.json > orders.json

tests/data/paged_stash.json has jobs with the orders that the file of d98e8a64 issued: the output for its own jobs. A job has
`settings` of docs/examples/paged-stash.yaml and the pipeline `rank`; the `schedule` in which its chunks run, [direction, micro-batch,
chunk]; the `layers` of a chunk and the `tensors` that a layer's experts save. Orders are those of stub_torch.py, and

    ["pack", number], ["unpack", number]     a tensor goes to pages; the one with that number is filled again

The first step records the order, the second one is printed. Compute's point is the number of layers begun, in either direction.
"""

import sys
import types

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Named, Stream, module


def stub():
    torch = stub_torch.install()
    torch.int64 = 8
    for name in ("megatron", "megatron.core", "megatron.core.optimizer", "megatron.core.transformer", "megatron.core.transformer.moe",
                 "megatron.core.transformer.moe.ops"):
        module(name)
    module("megatron.core.transformer.moe.token_dispatcher", nccl_ep_release_context=None)
    module("megatron.core._rank_utils", log_single_rank=lambda *_: None)
    module("megatron.core.full_cuda_graph", FullCudaGraphWrapper=Named)
    module("megatron.core.optimizer.distrib_optimizer", DistributedOptimizer=Named)
    module("megatron.core.transformer.moe.ops.paged_stash", GLOBAL_BLOCK_SIZE=1, paged_stash_copy_kernel=None,
           paged_stash_pop_kernel=None)
    module("megatron.core.utils", get_attr_wrapped_model=None)
    torch.zeros = lambda *_, **__: types.SimpleNamespace(zero_=lambda: None)


class Saved:
    """In place of a PagedTensor, whose kernels find pages as they run."""

    dtype, hidden_size, original_shape, device = 2, 1, (1,), "cuda"
    packed = 0

    def offload_to_stash(self, _):
        assert Stream.current is not Stream.compute
        self.number, Saved.packed = Saved.packed, Saved.packed + 1
        LOG.append(["pack", self.number])
        Stream.current.point += 1

    def reload_from_stash(self, _):
        assert self._tensor.is_cuda and Stream.current is not Stream.compute
        LOG.append(["unpack", self.number])
        Stream.current.point += 1


class Layer:
    """A layer of a micro-batch: start, what its experts save, commit; and backward."""

    def __init__(self, upstream, manager):
        self.pre, self.post = upstream.PipelinePreScheduleFunction, upstream.PipelinePostScheduleFunction
        self.manager, self.start, self.commit = manager, types.SimpleNamespace(), types.SimpleNamespace()

    def forward(self, tensors):
        Stream.compute.point += 1
        self.pre.forward(self.start, None, self.manager)
        for _ in range(tensors):
            self.manager.add_paged_tensor_to_stash(Saved())
        self.post.forward(self.commit, None, self.manager)

    def backward(self):
        Stream.compute.point += 1
        self.post.backward(self.commit)
        self.pre.backward(self.start)


def step(upstream, manager, job):
    manager.pack_stream.point = Stream.compute.point = Saved.packed = 0
    LOG.clear()
    upstream.paged_stash_reset()
    alive = {}
    for direction, micro_batch, chunk in job["schedule"]:
        if direction == "forward":
            upstream.paged_stash_init_chunk_handler(job["chunks"], chunk)
            alive[micro_batch, chunk] = [Layer(upstream, manager) for _ in range(job["layers"])]
            for layer in alive[micro_batch, chunk]:
                layer.forward(job["tensors"])
        else:
            for layer in reversed(alive.pop((micro_batch, chunk))):
                layer.backward()


def order(upstream, job):
    stub_torch.begin("pack")
    upstream.PagedStashManager.STASH_MGR = None
    manager = upstream.PagedStashManager.get_instance()
    step(upstream, manager, job)
    manager.allocate_stash_buffers = lambda **_: setattr(manager, "stash_buffers", {2: {1: types.SimpleNamespace(reset=lambda: None)}})
    manager.overflow = manager.host_spill = types.SimpleNamespace(zero_=lambda: None)
    step(upstream, manager, job)
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
