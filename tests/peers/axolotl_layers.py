#!/usr/bin/env python3
"""What Axolotl's layer_offloading issues in a training step, alone and beside activation_offloading: hidden_states: its
own files, run on a stub of torch.

    python3 tests/peers/axolotl_layers.py axolotl/src/axolotl > tests/data/axolotl_layers.json

tests/data/axolotl_layers.json has the orders that Axolotl 067b021c issued. The script calls the hooks in the order in
which PyTorch calls them; the files decide what they do. `steady` is the second step. An order is a list of

    ["run", layer]                    the kernels of a layer, forward, recomputation or backward
    ["out", stream, what]             a copy to the host: "weights 3", "input 3"
    ["in", stream, what]              a copy to the device
    ["wait", waiting, on, number]     a stream waits until another one has done that many copies of the step
    ["host waits", stream]
"""

import contextlib
import importlib.util
import json
import sys
import types

from stub_torch import SavedTensorsHooks

LOG = []


class Stream:
    made = []

    def __init__(self, name=None, device=None):
        self.name = name or Stream.made.pop(0)

    def copies(self):
        return sum(e[0] in ("in", "out") and e[1] == self.name for e in LOG)

    def record_event(self):
        return Event(self)

    def wait_event(self, event):
        LOG.append(["wait", self.name, event.stream.name, event.copies])

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        LOG.append(["host waits", self.name])


class Event:
    def __init__(self, stream):
        self.stream, self.copies = stream, stream.copies()

    def synchronize(self):
        """Called once the host has waited for all of its stream."""


COMPUTE = Stream("compute")
CURRENT = [COMPUTE]


@contextlib.contextmanager
def on_stream(stream):
    CURRENT.append(stream)
    yield
    CURRENT.pop()


class Tensor:
    def __init__(self, what, where="cuda"):
        self.what, self.device, self.dtype, self.layout = what, types.SimpleNamespace(type=where), "bf16", "strided"
        self.requires_grad, self.data = False, self

    def copy_(self, source, non_blocking):
        LOG.append(["out", CURRENT[-1].name, source.what])
        self.what = source.what

    def to(self, device, non_blocking):
        LOG.append(["in", CURRENT[-1].name, self.what])
        return Tensor(self.what)

    detach = lambda self: self
    size = stride = lambda self: (1024,)
    storage_offset = lambda self: 0
    element_size = nelement = lambda self: 1024
    record_stream = lambda self, stream: None


class Parameter:
    def __init__(self, tensor):
        self.data, self.requires_grad = tensor, False

    device = property(lambda self: self.data.device)


class Module:
    def __init__(self):
        self.hooks = {}

    def on(self, name):
        return lambda hook: self.hooks.setdefault(name, hook)

    register_forward_pre_hook = property(lambda self: self.on("before forward"))
    register_forward_hook = property(lambda self: self.on("after forward"))
    register_full_backward_pre_hook = property(lambda self: self.on("before backward"))
    register_full_backward_hook = property(lambda self: self.on("after backward"))


class GradientCheckpointingLayer(Module):
    training = gradient_checkpointing = True

    def __call__(self, hidden):
        return None


class DecoderLayer(GradientCheckpointingLayer):
    def __init__(self, number):
        super().__init__()
        self.weights = Parameter(Tensor(f"weights {number}"))

    def named_parameters(self):
        return [("weights", self.weights)]


class ModuleList(list):
    pass


class Model(Module):
    def __init__(self, layers):
        self.layers = ModuleList(DecoderLayer(i) for i in range(layers))

    def named_children(self):
        return [("layers", self.layers)]

    def parameters(self):
        return [layer.weights for layer in self.layers]


def stub(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
    return sys.modules[name]


def stub_torch():
    cuda = types.SimpleNamespace(Stream=Stream, default_stream=lambda device: COMPUTE, current_stream=lambda: COMPUTE,
                                 stream=on_stream, is_available=lambda: True, memory_allocated=lambda device: 0,
                                 empty_cache=lambda: None)
    nn = stub("torch.nn", Module=Module, ModuleList=ModuleList, Parameter=Parameter)
    stub("torch", nn=nn, cuda=cuda, Tensor=Tensor, Event=Event, Size=tuple, device=str, dtype=str, layout=str,
         is_tensor=lambda t: isinstance(t, Tensor), is_grad_enabled=lambda: True,
         empty_like=lambda t, device, pin_memory: Tensor(t.what, "cpu"),
         empty_strided=lambda size, stride, **k: Tensor("", "cpu"))
    stub("torch.autograd")
    stub("torch.autograd.graph", saved_tensors_hooks=SavedTensorsHooks)
    stub("transformers", Trainer=object, GradientCheckpointingLayer=GradientCheckpointingLayer,
         is_torch_npu_available=lambda: False)
    logger = types.SimpleNamespace(info=lambda *a: None, warning=lambda *a: None)
    for name in ("axolotl", "axolotl.utils"):
        stub(name)
    stub("axolotl.utils.logging", get_logger=lambda name: logger)


def load(path):
    spec = importlib.util.spec_from_file_location(path.rsplit("/", 1)[-1].removesuffix(".py"), path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(layer, number, name, *gradients):
    layer.hooks[name](layer, *gradients)


def forward(model, inputs, checkpoints):
    kept = []
    for i, layer in enumerate(model.layers):
        hidden = Tensor(f"input {i}")
        GradientCheckpointingLayer.__call__(layer, hidden)  # where inputs are marked
        kept.append(inputs.pack(hidden) if inputs else hidden)
        call(layer, i, "before forward", ())
        LOG.append(["run", i])
        call(layer, i, "after forward", (), None)
    return kept


def backward(model, inputs, checkpoints, kept):
    for i, layer in reversed(list(enumerate(model.layers))):
        call(layer, i, "before backward", None)
        if checkpoints:
            if inputs:
                inputs.unpack(kept[i])
            call(layer, i, "before forward", ())  # the recomputation stops early: no hook after it
            LOG.append(["run", i])
        LOG.append(["run", i])
        call(layer, i, "after backward", None, None)


def record(layers_file, inputs_file, layers, moves_inputs, checkpoints):
    Stream.made[:] = ["h2d", "d2h"]
    model = Model(layers)
    manager = layers_file.LayerOffloadManager(model)
    manager.setup_hooks()
    inputs = inputs_file.CheckpointHiddenStatesOffload() if moves_inputs else None
    for _ in range(2):
        LOG.clear()
        with layers_file._LayerOffloadContext(manager), inputs or contextlib.nullcontext():
            backward(model, inputs, checkpoints, forward(model, inputs, checkpoints))
    return list(LOG)


if __name__ == "__main__":
    stub_torch()
    files = [load(f"{sys.argv[1]}/{name}.py") for name in ("core/trainers/mixins/layer_offloading",
                                                           "monkeypatch/checkpoint_activation_offload")]
    jobs = [(layers, moves, checkpoints) for layers in (1, 2, 3, 5)
            for moves, checkpoints in ((False, False), (False, True), (True, True))]
    print("[\n" + ",\n".join(json.dumps({"layers": layers, "hidden_states": moves, "checkpoints": checkpoints,
                                         "steady": record(*files, layers, moves, checkpoints)})
                             for layers, moves, checkpoints in jobs) + "\n]")
