#!/usr/bin/env python3
"""What Axolotl's engines for checkpoints issue in a step: their files, run on a stub of torch.

    python3 tests/peers/axolotl_checkpoints.py axolotl/src/axolotl/monkeypatch/checkpoint_activation_offload.py < jobs.json > orders.json

tests/data/axolotl_checkpoints.json has jobs with the orders that the files of 067b021c issued, activation_offload_checkpoint.py and
selective_checkpointing_offload.py being beside it: the output for its own jobs. A job has the offload `system`, the number of
`layers` and of `micro_batches`, and whether selective checkpoints' `inputs` leave too. The script calls the engines as PyTorch's
checkpoints do: a layer's input is saved before the layer runs, attention's output when it has run, and backward takes a layer's input
before it enters the context of the recomputation. Orders are those of stub_torch.py; compute's point is the number of layers begun,
backward's after forward's.
"""

import contextlib
import importlib.util
import pathlib
import sys
import types

import stub_torch
from recorded_orders import print_orders
from stub_torch import LOG, Named, Stream, Tensor, module

TOKENS, HEADS, HIDDEN = 4096, 32, 4096


def beside(name):
    """The module of another file in the folder of the one that the command line names."""
    path = pathlib.Path(sys.argv[1]).with_name(name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def stub():
    torch = stub_torch.install()
    torch.empty_strided = lambda size, stride, **options: stub_torch.empty(size, **options)
    torch._ops = types.SimpleNamespace(HigherOrderOperator=Named)
    for name in ("torch.utils", "axolotl", "axolotl.utils", "axolotl.monkeypatch"):
        module(name)
    names = ("_get_autocast_kwargs", "_get_device_module", "_infer_device_type", "check_backward_validity", "detach_variable",
             "get_device_states", "set_device_states", "SAC_IGNORED_OPS", "SelectiveCheckpointContext", "_policy_from_bool",
             "_VersionWrapper", "_maybe_detach")
    module("torch.utils.checkpoint", CheckpointPolicy=types.SimpleNamespace(MUST_SAVE=1, PREFER_SAVE=2), **dict.fromkeys(names))
    module("torch.utils._python_dispatch", TorchDispatchMode=type("TorchDispatchMode", (), {"__enter__": lambda self: self}))
    module("torch.utils._pytree", tree_map=None)
    module("axolotl.utils.logging", get_logger=lambda name: types.SimpleNamespace(info=lambda text: None))
    module("axolotl.monkeypatch.selective_checkpointing", build_sac_policy=lambda *_: None,
           SacPolicyState=lambda: types.SimpleNamespace(regions_seen=0))
    module("transformers", GradientCheckpointingLayer=type("Layer", (), {"__call__": None}), is_torch_npu_available=lambda: False)


class Inputs:
    """hidden_states: non-reentrant checkpoints."""

    def __init__(self, upstream):
        self.engine = upstream.CheckpointHiddenStatesOffload()

    def save(self, tensor):
        self.engine.mark(tensor)
        return self.engine.pack(tensor)

    def take(self, saved):
        self.engine.unpack(saved)


class Reentrant:
    """hidden_states_reentrant: the checkpoint itself calls its manager."""

    engine = contextlib.nullcontext()

    def __init__(self):
        self.manager = beside("activation_offload_checkpoint")._StreamOffloadManager()
        self.save, self.take = self.manager.offload, self.manager.restore


class Nothing:
    engine = contextlib.nullcontext()
    save = take = staticmethod(lambda _: None)


class Outputs:
    """selective_checkpointing: attention's outputs."""

    def __init__(self):
        self.upstream = beside("selective_checkpointing_offload")
        self.engine = self.upstream.SacOffloadEngine()
        self.contexts = self.upstream.build_sac_offload_context_fn(engine=self.engine)

    def run(self):
        forward, recompute = self.contexts()
        output = Tensor((1, HEADS, TOKENS, HIDDEN // HEADS))
        return recompute, self.engine.pack(output, forward.region_id) if self.engine.should_offload(output) else None

    def again(self, kept):
        recompute, output = kept
        recompute.__enter__()
        Stream.compute.point += 1
        self.engine.restore(output)


class Recomputed:
    """Checkpoints that keep nothing."""

    def run(self):
        pass

    def again(self, _):
        Stream.compute.point += 1


def micro_batch(layers, inputs, outputs):
    kept = []
    with inputs.engine:
        for _ in range(layers):
            saved = inputs.save(Tensor((1, TOKENS, HIDDEN)))
            Stream.compute.point += 1
            kept.append((saved, outputs.run()))
        for saved, run in reversed(kept):
            inputs.take(saved)
            outputs.again(run)


def order(upstream, job):
    selective = job["system"] == "selective_checkpointing"
    stub_torch.begin("d2h", "h2d")
    inputs = Reentrant() if job["system"] == "hidden_states_reentrant" else Inputs(upstream) if job["inputs"] else Nothing()
    outputs = Outputs() if selective else Recomputed()
    Stream.compute.point = 0
    for _ in range(job["micro_batches"]):
        micro_batch(job["layers"], inputs, outputs)
    return list(LOG)


if __name__ == "__main__":
    stub()
    print_orders(order)
