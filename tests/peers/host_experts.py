#!/usr/bin/env python3
"""What a layer of Megatron-LM's OffloadingExpertsMLP issues forward and backward: its autograd function, run on a stub of torch.

    python3 tests/peers/host_experts.py core/transformer/moe/experts_offloading.py < jobs.json > orders.json

tests/data/host_experts.json has jobs with the orders that the file of pull request #6494 (917bf593) issued, beside
experts_offloading_util.py: the output for its own jobs. A job has the `experts` of a rank, their `chunks`, the `stages` (buffers
for a chunk) and whether backward makes the first product `again` (recompute_modules moe_act). Orders are lists of

    ["copy", linear, expert, buffer, stream]     a weight to its place in a chunk's buffer; there are two streams
    ["arrived", stream, copies]                  compute waits for that many copies of the stream
    ["product", linear, transposed, buffer]      by the weights in the buffer
    ["read", stream, products]                   the stream waits until compute has done that many products
    ["activation", direction], ["gradient", linear]

Products run on a stream of their own, which takes turns with the current one: both are compute.
"""

import importlib.util
import pathlib
import sys
import types

from recorded_orders import on_stream, print_orders

LOG = []
HIDDEN, WIDE, NARROW, ROWS = 8, 12, 6, 4  # ROWS of each expert


def count(kind, stream=None):
    return sum(entry[0] == kind and (stream is None or entry[-1] == stream) for entry in LOG)


def note(entry):
    """Waits of the current stream and of that of products come one after the other, and are one."""
    if not LOG or LOG[-1] != entry:
        LOG.append(entry)


class Event:
    def record(self, stream):
        self.stream = stream
        self.copies, self.products = count("copy", stream.number), count("product") + count("gradient")


class Stream:
    current = None
    made = 0

    def __init__(self):
        self.number = None

    @property
    def cuda_stream(self):
        return id(self)

    def wait_event(self, event):
        if self.number is None and event.stream.number is not None:
            note(["arrived", event.stream.number, event.copies])
        elif self.number is not None and event.stream.number is None:
            note(["read", self.number, event.products])

    def wait_stream(self, other):
        event = Event()
        event.record(other)
        self.wait_event(event)


class Tensor:
    """Rows of activations, or of gradients; `shape` alone matters."""

    dtype, device, data = "bf16", "cuda", None

    def __init__(self, *shape):
        self.shape = shape

    def contiguous(self):
        return self

    detach = contiguous

    def unsqueeze(self, _):
        return self

    def squeeze(self, _):
        return self

    def untyped_storage(self):
        return types.SimpleNamespace(resize_=lambda size: None)


class Weight(Tensor):
    def __init__(self, linear, expert, *shape):
        super().__init__(*shape)
        self.linear, self.expert, self.data, self.main_grad = linear, expert, self, Gradient(linear)


class Gradient(Tensor):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear


class Place(Tensor):
    """An expert's place in a buffer."""

    def __init__(self, linear, buffer):
        super().__init__()
        self.linear, self.buffer = linear, buffer

    def copy_(self, weight, non_blocking=False):
        assert non_blocking and weight.linear == self.linear and Stream.current.number is not None
        LOG.append(["copy", weight.linear, weight.expert, self.buffer, Stream.current.number])


def split(tensor, sizes):
    assert sum(sizes) == tensor.shape[0]
    return [Tensor(size, *tensor.shape[1:]) for size in sizes]


def grouped_gemm(A, B, out, layout, **others):  # pylint: disable=invalid-name
    if layout[1] == "T":
        assert others["accumulate"] and all(isinstance(each, Gradient) for each in out)
        LOG.append(["gradient", out[0].linear])
    else:
        assert len({(place.linear, place.buffer) for place in A}) == 1 and len(A) == len(B)
        LOG.append(["product", A[0].linear, layout[0] == "T", A[0].buffer])


def activation(*_):
    LOG.append(["activation", "forward"])
    return Tensor(_[0].shape[0], NARROW)


def activation_back(gradient, x, probs):
    LOG.append(["activation", "backward"])
    return Tensor(*x.shape), Tensor(*probs.shape)


def empty(*shape, **_):
    return Tensor(*shape)


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    sys.modules[name] = made
    return made


LAUNCH = Stream()
Stream.current = LAUNCH
module("torch", Tensor=Tensor, split=split, empty=empty, empty_like=lambda t: Tensor(*t.shape), dtype=object,
       autograd=types.SimpleNamespace(Function=object), nn=types.SimpleNamespace(Parameter=Weight),
       cuda=types.SimpleNamespace(Event=Event, Stream=Stream, stream=on_stream, current_stream=lambda: LAUNCH,
                                  default_stream=lambda: LAUNCH))
for package in ("megatron", "megatron.core", "megatron.core.transformer", "megatron.core.transformer.moe",
                "megatron.core.fusions", "megatron.core.dist_checkpointing", "transformer_engine",
                "transformer_engine.pytorch", "transformer_engine.pytorch.module"):
    module(package)
module("megatron.core.transformer.transformer_config", TransformerConfig=object)
module("megatron.core.dist_checkpointing.mapping", ShardedTensor=object)
module("megatron.core.fusions.fused_bias_swiglu", weighted_swiglu=activation, weighted_swiglu_back=activation_back)
module("transformer_engine.pytorch.cpp_extensions", general_grouped_gemm=grouped_gemm)
module("transformer_engine.pytorch.module.base", get_multi_stream_cublas_workspace=lambda: None)
UTIL = "megatron.core.transformer.moe.experts_offloading_util"
SPEC = importlib.util.spec_from_file_location(UTIL, pathlib.Path(sys.argv[1]).with_name("experts_offloading_util.py"))
sys.modules[UTIL] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(sys.modules[UTIL])


def order(upstream, job):
    LOG.clear()
    util = sys.modules[UTIL]
    streams = util.StreamManager(2, num_compute_streams=1)
    for number, stream in enumerate(streams.h2d_streams):
        stream.number = number
    experts, size = job["experts"], job["experts"] // job["chunks"]
    config = types.SimpleNamespace(
        moe_offloading_num_stages=job["stages"], moe_offloading_num_chunks=job["chunks"], moe_offloading_chunk_size=size,
        moe_ffn_hidden_size=NARROW, hidden_size=HIDDEN, gated_linear_unit=True, delay_wgrad_compute=False,
        gradient_accumulation_fusion=True, recompute_granularity="selective" if job["again"] else None,
        recompute_modules=["moe_act"])
    weights = [Weight(linear, expert, *shape) for linear, shape in ((1, (HIDDEN, WIDE)), (2, (NARROW, HIDDEN)))
               for expert in range(experts)]
    buffers = [[[Place(linear, stage) for _ in range(size)] for stage in range(job["stages"])] for linear in (1, 2)]
    kept = types.SimpleNamespace()
    kept.save_for_backward = lambda *tensors: setattr(kept, "saved_tensors", tensors)
    rows = types.SimpleNamespace(tolist=lambda: [ROWS] * experts)
    function = upstream.OffloadingExpertsGroupedMLP
    function.forward(kept, *weights, *buffers, Tensor(ROWS * experts, HIDDEN), rows, experts, Tensor(ROWS * experts),
                     util.ExpertsWgradScheduler(), streams, config, [])
    function.backward(kept, Tensor(ROWS * experts, HIDDEN), None)
    return list(LOG)


if __name__ == "__main__":
    print_orders(order)
