#!/usr/bin/env python3
"""What the offload of Megatron-LM's pull request #1752 issues in a step: its file, run on a stub of torch.

    python3 tests/peers/megatron_pr1752.py core/pipeline_parallel/cpu_offload.py < jobs.json > orders.json

tests/data/megatron_pr1752.json has jobs with the orders that the file of af236f1118 issued: the output for its own jobs. A job has
`settings` of docs/examples/pr1752.yaml and the pipeline `rank`, the `schedule` in which its chunks run ([direction, micro-batch,
chunk]), the number of `chunks` and of the `layers` of each. A layer's core attention saves SAVED; its arguments are registered and have
a start marker each, as in attention.py. Orders are those of stub_torch.py; compute's point is the number of layers begun, in either
direction.
"""

import sys
import types

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Stream, Tensor, module

# Shapes of what attention saves; whether it is one of core attention's arguments.
SAVED = [((1 << 14, 1, 32, 128), True), ((1 << 14, 1, 4, 128), True), ((1 << 14, 1, 4, 128), True), ((1 << 14, 1, 32, 128), False)]


class Ranks:
    """megatron.core.parallel_state."""

    chunks = chunk = 0

    get_virtual_pipeline_model_parallel_world_size = staticmethod(lambda: Ranks.chunks)
    get_virtual_pipeline_model_parallel_rank = staticmethod(lambda: Ranks.chunk)


def stub():
    stub_torch.install()
    for name in ("megatron", "transformer_engine", "transformer_engine.pytorch"):
        module(name)
    module("megatron.core", parallel_state=Ranks)
    module("transformer_engine.pytorch.float8_tensor", Float8Tensor=type("Float8Tensor", (), {}))


class Layer:
    def __init__(self, handler):
        self.handler, self.tags = handler, []

    def forward(self):
        Stream.compute.point += 1
        for shape, registered in SAVED:
            tensor = Tensor(shape)
            tensor.registered = registered
            self.tags.append(self.handler.tensor_push(tensor))
        self.handler.on_group_commit_forward(None)

    def backward(self, manager):
        Stream.compute.point += 1
        self.handler.on_group_commit_backward()
        for tag in self.tags:
            manager.cur_backward_chunk().tensor_pop(tag)
        for _, registered in SAVED:
            if registered:
                self.handler.on_group_start_backward()


def order(upstream, job):
    stub_torch.begin("d2h", "h2d")
    Ranks.chunks, Stream.compute.point = job["chunks"], 0
    upstream.PipelineOffloadManager.OFFLOAD_MGR = None
    manager = upstream.PipelineOffloadManager.get_instance()
    alive = {}
    for direction, micro_batch, chunk in job["schedule"]:
        if direction == "forward":
            Ranks.chunk = chunk
            manager.reset_chunk_handler(job["layers"])
            manager.cur_forward_chunk().set_offloading_checker(lambda tensor: tensor.registered)
            alive[micro_batch, chunk] = [Layer(manager.cur_forward_chunk()) for _ in range(job["layers"])]
            for layer in alive[micro_batch, chunk]:
                layer.forward()
        else:
            for layer in reversed(alive.pop((micro_batch, chunk))):
                layer.backward(manager)
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
