"""Records what DeepSpeed's own engine of cpu_checkpointing does with the inputs of layers, on a fake accelerator on the CPU:
tests/data/deepspeed_offload.json, which tests/systems/test_deepspeed.py compares. Needs torch, and DeepSpeed's file
deepspeed/runtime/activation_checkpointing/offload_activations.py.

    python3 tests/peers/deepspeed_offload.py offload_activations.py > tests/data/deepspeed_offload.json
"""

import contextlib
import importlib.util
import json
import sys
import types

import torch

LOG, CURRENT = [], ["compute"]


class Event:
    def __init__(self, on):
        self.on = on


class Stream:
    def __init__(self, name="copies"):
        self.name = name

    def wait_stream(self, other):
        LOG.append(["join", self.name, other.name])

    def wait_event(self, event):
        LOG.append(["wait", self.name, event.on])

    def record_event(self):
        return Event(self.name)


class Accelerator:
    Stream = Stream

    def current_stream(self):
        return Stream(CURRENT[-1])

    @contextlib.contextmanager
    def stream(self, stream):
        CURRENT.append(stream.name)
        yield
        CURRENT.pop()

    def is_synchronized_device(self):
        return False

    def on_accelerator(self, tensor):
        return True

    def pin_memory(self, tensor, make_copy):
        return tensor


def load(path):
    sys.modules["deepspeed"] = types.ModuleType("deepspeed")
    sys.modules["deepspeed.accelerator"] = types.ModuleType("deepspeed.accelerator")
    sys.modules["deepspeed.accelerator"].get_accelerator = Accelerator
    spec = importlib.util.spec_from_file_location("offload_activations", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(engine, layers):
    """The inputs' numbers are their values."""
    LOG.clear()
    copy, mark = torch.Tensor.copy_, torch.Tensor.record_stream

    def copying(to, source, **options):
        LOG.append([("d2h" if int(source[0]) not in out else "h2d"), CURRENT[-1], int(source[0])])
        out.add(int(source[0]))
        return copy(to, source)

    out, ids = set(), []
    torch.Tensor.copy_ = copying
    torch.Tensor.record_stream = lambda tensor, stream: LOG.append(["mark", int(tensor[0]), stream.name])
    for layer in range(layers):
        given = torch.full((4,), float(layer))
        ids.append(engine.offload_input(given.detach()))
        given.data = torch.empty([])
    for layer in reversed(range(layers)):
        engine.restore_input(ids[layer])
    torch.Tensor.copy_, torch.Tensor.record_stream = copy, mark
    return list(LOG)


engine_of = load(sys.argv[1])._ActivationOffloadEngine
runs = ",\n  ".join(json.dumps({"layers": layers, "events": run(engine_of(keep_last_count=1, min_offload_bytes=0), layers)})
                     for layers in (1, 2, 3, 6))
print(f'{{"torch": "{torch.__version__}", "runs": [\n  {runs}]}}')
