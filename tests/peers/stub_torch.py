"""What peers that run an upstream file on a stub of torch share: streams and events that note what is asked of them.

LOG is a list of

    ["d2h", stream, number, elements]    a copy out; copies out are numbered
    ["h2d", stream, number, elements]    a copy of what that one copied out, and, if the peer numbers places, the place
    ["wait", waiting, on, point]         a stream waits for an event of another one, or for all it was given
    ["sync", stream, point]              the host waits, for compute as far as it was given work
    ["clone", stream]                    what the next copy out takes is made contiguous

An event's point is how far its stream was: on a stream of copies the number of copies that it was given, on compute what
the peer sets as Stream.compute.point.
"""

import math
import sys
import types

from recorded_orders import on_stream

LOG = []


class Event:
    stream = point = None

    def __init__(self, **_):
        pass

    def record(self, stream=None):
        self.stream = stream or Stream.current
        self.point = self.stream.point

    def wait(self, stream=None):
        (stream or Stream.current).wait_event(self)

    def query(self):
        """No copy is found done, as in a plan, but those for which the host has waited."""
        return self.point <= self.stream.waited_for

    def synchronize(self):
        if not self.query():
            LOG.append(["sync", self.stream.name, self.point])
            self.stream.waited_for = self.point


class Stream:
    """The first one is compute; those that upstream's file makes take their names from `names`."""

    current = compute = None
    names = []

    def __init__(self, *_, **__):
        self.name, self.point, self.waited_for = Stream.names.pop(0), 0, -1

    def wait_event(self, event):
        LOG.append(["wait", self.name, event.stream.name, event.point])

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        LOG.append(["sync", self.name] + ([] if self is Stream.compute else [self.point]))
        self.waited_for = self.point

    def __enter__(self):
        self.before, Stream.current = Stream.current, self

    def __exit__(self, *_):
        Stream.current = self.before


def begin(*names):
    """Forgets what was noted; upstream's file will make streams of these names."""
    LOG.clear()
    Stream.names = ["compute", *names]
    Stream.current = Stream.compute = Stream()


class Device:
    def __init__(self, kind, index=0):
        self.type, self.index = kind, index

    def __eq__(self, other):
        return isinstance(other, Device) and other.type == self.type

    __hash__ = None


def rows(shape):
    """Strides of a contiguous tensor."""
    return [math.prod(shape[i + 1:]) for i in range(len(shape))]


class Storage:
    def __init__(self, number, size):
        self.number, self._cdata, self.bytes = number, number, size

    def data_ptr(self):
        return (1 + self.number) << 48  # apart, for any offset

    def size(self):
        return self.bytes


class Tensor:
    """A view of a storage. `number`: of the copy out that a host tensor, or one that came back, has the contents of."""

    layout, requires_grad, _base, number, place = "strided", False, None, None, None

    def __init__(self, shape, device="cuda", storage=None, strides=None, first=0, size=2, number=None):
        self.shape, self.device, self.storage = tuple(shape), Device(device), storage
        self.strides, self.first, self.bytes, self.number = tuple(strides or rows(shape)), first, size, number

    is_cuda = property(lambda self: self.device.type == "cuda")
    dtype = property(lambda self: self.bytes)
    data = property(lambda self: self, lambda self, other: None)

    def numel(self):
        return math.prod(self.shape)

    nelement = numel

    def element_size(self):
        return self.bytes

    def size(self):
        return self.shape

    def stride(self):
        return self.strides

    def storage_offset(self):
        return self.first

    def untyped_storage(self):
        return self.storage

    def is_contiguous(self):
        return self.strides == tuple(rows(self.shape))

    def is_pinned(self):
        return not self.is_cuda

    def detach(self):
        return self

    def view(self, shape):
        assert math.prod(shape) == self.numel()
        return Tensor(shape, self.device.type, self.storage, None, 0, self.bytes, self.number)

    def contiguous(self, **_):
        LOG.append(["clone", Stream.current.name])
        return Tensor(self.shape, self.device.type, Storage(-1, self.numel() * self.bytes), size=self.bytes)

    clone = contiguous

    def requires_grad_(self, _):
        return self

    def record_stream(self, stream):
        assert stream is Stream.current

    def copy_(self, source, non_blocking=False):
        assert non_blocking and source.numel() == self.numel() and source.is_cuda != self.is_cuda
        self.number = sum(event[0] == "d2h" for event in LOG) if source.is_cuda else source.number
        if not source.is_contiguous():
            source.contiguous()
        kind, place = ("d2h" if source.is_cuda else "h2d"), ([] if self.place is None else [self.place])
        LOG.append([kind, Stream.current.name, self.number, self.numel(), *place])
        if Stream.current is not Stream.compute:
            Stream.current.point += 1
        return self

    def to(self, device, non_blocking):
        return empty_like(self, device=device).copy_(self, non_blocking)


class Parameter(Tensor):
    pass


def as_strided(tensor, size, stride, storage_offset):
    return Tensor(size, tensor.device.type, tensor.storage, stride, storage_offset, tensor.bytes, tensor.number)


def empty(size, device="cuda", dtype=2, **_):
    return Tensor(size if isinstance(size, tuple) else (size,), getattr(device, "type", device), size=dtype)


def empty_like(tensor, device=None, **_):
    device = tensor.device if device is None else "cuda" if isinstance(device, int) else device
    return Tensor(tensor.shape, getattr(device, "type", device), tensor.storage, size=tensor.bytes)


def tensors_of(job):
    """The tensors that a job's step saves (tests/plans/saved_tensors.py)."""
    storages = {}
    for _, number, elements, first, shape, strides, size, what in job["saved"]:
        storage = storages.setdefault(number, Storage(number, elements * size))
        kind = Parameter if what == "weight" and list(strides) == rows(shape) else Tensor
        yield kind(shape, "cuda", storage, strides, first, size)


def layers_of(job):
    """By layer, the tensors that it saves."""
    return [[tensor for (kernels, *_), tensor in zip(job["saved"], tensors_of(job)) if first <= kernels < end]
            for first, end in job["layers"]]


def storages_of_weights(job):
    """As data_ptr of untyped_storage."""
    return {tensor.untyped_storage().data_ptr() for saved, tensor in zip(job["saved"], tensors_of(job)) if saved[-1] == "weight"}


class Named:
    """A class of torch that is named and never has an instance."""


def module(name, **members):
    made = types.ModuleType(name)
    made.__path__ = []
    made.__dict__.update(members)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made


class SavedTensorsHooks:
    """What a peer calls as autograd would."""

    def __init__(self, pack, unpack):
        self.pack, self.unpack = pack, unpack

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def install():
    """The modules torch, torch.autograd and torch.autograd.graph of the stub."""
    cuda = types.SimpleNamespace(
        Stream=Stream, Event=Event, stream=on_stream, current_stream=lambda *_: Stream.current,
        default_stream=lambda *_: Stream.compute, current_device=lambda: 0, is_available=lambda: True,
        empty_cache=lambda: None)
    fakes = types.SimpleNamespace(FakeTensor=type("FakeTensor", (), {}),
                                  fake_tensor=types.SimpleNamespace(FakeTensor=type("FakeTensor", (), {})),
                                  functional_tensor=types.SimpleNamespace(FunctionalTensor=type("Functional", (), {})))
    torch = module("torch", cuda=cuda, Tensor=Tensor, empty=empty, empty_like=empty_like, as_strided=as_strided, device=Device,
                   dtype=object, layout=object, Size=tuple, Event=Event, contiguous_format=None, _subclasses=fakes,
                   is_tensor=lambda value: isinstance(value, Tensor),
                   nn=types.SimpleNamespace(Parameter=Parameter, Module=object))
    module("torch.autograd", Function=type("Function", (), {"apply": None}))
    module("torch.autograd.graph", saved_tensors_hooks=SavedTensorsHooks)
    return torch
