"""What peers that run an upstream file on a stub of torch share: streams and events that note what is asked of them.

LOG is a list of

    ["d2h", stream, number, elements]    a copy out; copies out are numbered
    ["h2d", stream, number, elements]    a copy of what that one copied out, and, if the peer numbers places, the place
    ["wait", waiting, on, point]         a stream waits for an event of another one, or for all it was given
    ["sync", stream]                     the host waits

An event's point is how far its stream was: on a stream of copies the number of copies that it was given, on compute what
the peer sets as Stream.compute.point.
"""

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

    def synchronize(self):
        LOG.append(["sync", self.stream.name])


class Stream:
    """The first one is compute; those that upstream's file makes take their names from `names`."""

    current = compute = None
    names = []

    def __init__(self, *_, **__):
        self.name, self.point = Stream.names.pop(0), 0

    def wait_event(self, event):
        LOG.append(["wait", self.name, event.stream.name, event.point])

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        LOG.append(["sync", self.name])

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


class Tensor:
    """`number`: of the copy out that a host tensor, or one that came back, has the contents of."""

    layout, requires_grad, _base, dtype, number, place = "strided", False, None, "bf16", None, None

    def __init__(self, elements, device="cuda"):
        self.elements, self.device, self.shape = elements, Device(device), (elements,)

    is_cuda = property(lambda self: self.device.type == "cuda")
    data = property(lambda self: self, lambda self, other: None)

    def numel(self):
        return self.elements

    nelement = numel

    def element_size(self):
        return 2

    def size(self):
        return self.shape

    def stride(self):
        return (1,)

    def storage_offset(self):
        return 0

    def is_contiguous(self):
        return True

    def is_pinned(self):
        return not self.is_cuda

    def detach(self):
        return self

    def record_stream(self, stream):
        pass

    def copy_(self, source, non_blocking=False):
        assert non_blocking and source.elements == self.elements and source.is_cuda != self.is_cuda
        self.number = sum(event[0] == "d2h" for event in LOG) if source.is_cuda else source.number
        kind, place = ("d2h" if source.is_cuda else "h2d"), ([] if self.place is None else [self.place])
        LOG.append([kind, Stream.current.name, self.number, self.elements, *place])
        if Stream.current is not Stream.compute:
            Stream.current.point += 1
        return self


def empty(size, device="cuda", **_):
    return Tensor(size[0] if isinstance(size, tuple) else size, getattr(device, "type", device))


def empty_like(tensor, device=None, **_):
    device = tensor.device if device is None else device
    return Tensor(tensor.elements, "cuda" if isinstance(device, int) else getattr(device, "type", device))


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


def install():
    """The modules torch, torch.autograd and torch.autograd.graph of the stub."""
    cuda = types.SimpleNamespace(
        Stream=Stream, Event=Event, stream=on_stream, current_stream=lambda *_: Stream.current,
        default_stream=lambda *_: Stream.compute, current_device=lambda: 0, is_available=lambda: True,
        empty_cache=lambda: None)
    fakes = types.SimpleNamespace(FakeTensor=type("FakeTensor", (), {}),
                                  fake_tensor=types.SimpleNamespace(FakeTensor=type("FakeTensor", (), {})),
                                  functional_tensor=types.SimpleNamespace(FunctionalTensor=type("Functional", (), {})))
    torch = module("torch", cuda=cuda, Tensor=Tensor, empty=empty, empty_like=empty_like, device=Device, dtype=object,
                   _subclasses=fakes, nn=types.SimpleNamespace(Parameter=type("Parameter", (Tensor,), {}), Module=object))
    module("torch.autograd", Function=type("Function", (), {"apply": None}))
    module("torch.autograd.graph", saved_tensors_hooks=Named)
    return torch
