#!/usr/bin/env python3
"""What verl's activation offload for FSDP issues in a step: its file, run on a stub of torch.

    python3 tests/peers/verl_offload.py verl/utils/activation_offload.py < jobs.json > orders.json

tests/data/verl_offload.json has jobs with the orders that the file of b178a3cd issued: the output for its own jobs. A job has
`settings` of tests/data/fsdp-8-layers.yaml and a step (tests/plans/saved_tensors.py). Orders are those of stub_torch.py; compute's
point is the number of layers begun, backward's after forward's.
"""

import sys

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Named, Stream, layers_of, module, storages_of_weights


def stub():
    torch = stub_torch.install()
    torch.no_grad = lambda function: function
    for name in ("torch.distributed", "verl", "verl.utils"):
        module(name)
    module("torch.distributed.fsdp", FullyShardedDataParallel=Named)
    module("verl.utils.device", get_torch_device=lambda: sys.modules["torch"].cuda)
    module("verl.utils.fsdp_utils", FSDPModule=Named)


def order(upstream, job):
    layers = layers_of(job)
    stub_torch.begin("d2h", "h2d")
    Stream.compute.point = 0
    filtered = upstream.FSDPParameterFilter()
    filtered.model_parameters_storage = storages_of_weights(job)
    hooks, _ = upstream.get_activation_offload_context(len(layers) - 1, len(layers), filtered)
    kept = []
    for layer in layers:
        Stream.compute.point += 1
        kept.append([hooks.on_save_for_backward(tensor) for tensor in layer])
        hooks.offload_handler.on_group_commit_forward()
    for layer in reversed(kept):
        hooks.offload_handler.on_group_commit_backward()
        Stream.compute.point += 1
        for each in layer:
            hooks.on_get_saved_tensor(each)
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
