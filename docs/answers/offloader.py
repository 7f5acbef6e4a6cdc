"""The lab's offloader, completed: saved tensors leave the GPU in forward, and are back when backward needs them.

    python3 docs/answers/offloader.py                  are the losses the same with and without it?
    offsim record -o mine.issued -- python3 docs/answers/offloader.py --only
    offsim check mine.issued                           and is that so in every timing?

Without a GPU, docs/lab/on_cpu.py replaces torch.cuda, and --record mine.issued replaces offsim record.
"""

import argparse
import contextlib
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "lab"))
import on_cpu

gpu = torch.cuda if torch.cuda.is_available() else on_cpu
DEVICE = "cuda" if gpu is torch.cuda else "cpu"
TOKENS, WIDTH, LAYERS, STEPS = 1024, 512, 4, 2


class Away:
    """A tensor that has left, and comes back."""

    def __init__(self, host, left):
        self.host, self.left = host, left  # its pinned buffer; the event after the copy to it
        self.back = self.arrived = None  # on the GPU again; the event after the copy back


class Offloader:
    def __init__(self):
        self.out, self.home = gpu.Stream(), gpu.Stream()  # the streams of copies to the host, and of copies back
        self.pinned = []  # host buffers, one for each tensor that leaves; the next step uses them again
        self.away = []  # the tensors of this step, in the order in which they left

    def begin_step(self):
        self.away = []

    def pack(self, tensor):
        """Autograd saves a tensor in forward. It keeps what is returned here in its place."""
        if isinstance(tensor, nn.Parameter) or tensor._base is not None:
            return tensor  # a weight, or a view of one
        compute = gpu.current_stream()
        if len(self.away) == len(self.pinned):
            self.pinned.append(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True))
        host = self.pinned[len(self.away)]
        self.out.wait_event(compute.record_event())  # 1
        with gpu.stream(self.out):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self.out)  # 2
        self.away.append(Away(host, self.out.record_event()))
        return len(self.away) - 1

    def bring_back(self, number):
        """Issues the copy back, once."""
        tensor = self.away[number]
        if tensor.arrived is not None:
            return
        self.home.wait_event(tensor.left)  # 3
        with gpu.stream(self.home):
            tensor.back = torch.empty(tensor.host.shape, dtype=tensor.host.dtype, device=DEVICE)
            tensor.back.copy_(tensor.host, non_blocking=True)
        tensor.arrived = self.home.record_event()

    def unpack(self, packed):
        """Backward needs the tensor for which pack returned `packed`."""
        if torch.is_tensor(packed):
            return packed
        compute = gpu.current_stream()
        self.bring_back(packed)
        if packed > 0:
            self.bring_back(packed - 1)  # the next one, so that its copy hides
        tensor = self.away[packed]
        compute.wait_event(tensor.arrived)  # 4
        tensor.back.record_stream(compute)  # 5
        back, tensor.back = tensor.back, None
        return back


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


def train(offloader):
    """The loss of each step, and the peak of memory in bytes."""
    torch.manual_seed(1)
    layers = nn.ModuleList([Layer() for _ in range(LAYERS)]).to(DEVICE)
    batches = torch.randn(STEPS, TOKENS, WIDTH).to(DEVICE)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1, foreach=False)
    losses = []
    gpu.reset_peak_memory_stats()
    for batch in batches:
        x = batch + 0
        offloader.begin_step()
        with torch.autograd.graph.saved_tensors_hooks(offloader.pack, offloader.unpack):
            for layer in layers[:-1]:
                x = layer(x)
        x = layers[-1](x)  # backward begins with it: what it saves stays
        loss = (x - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [loss.item().hex() for loss in losses], gpu.max_memory_allocated()


class Nothing(Offloader):
    """Without offload."""

    def pack(self, tensor):
        return tensor


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--only", action="store_true", help="with offload alone")
    options.add_argument("--record", metavar="FILE", help="without a GPU: with offload alone; what a GPU would be given")
    given = options.parse_args()
    if given.record and gpu is not on_cpu:
        options.error("offsim record writes the record of a program with a GPU")
    with on_cpu.recording(given.record) if gpu is on_cpu else contextlib.nullcontext():
        offloaded, offloaded_bytes = train(Offloader())
        if given.only or given.record:
            return
        kept, kept_bytes = train(Nothing())
    print(f"peak {kept_bytes / 2**20:.1f} MiB, with offload {offloaded_bytes / 2**20:.1f} MiB")
    print("the same losses" if kept == offloaded else f"DIFFERENT losses: {kept} and {offloaded}")


if __name__ == "__main__":
    main()
