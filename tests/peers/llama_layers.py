"""Forward and backward of Llama-like layers in plain PyTorch: step time and peak memory.

    python3 tests/peers/llama_layers.py [--layers 16] [--steps 10] [--trace FOLDER] MODE...

MODE: keep (everything stays on the GPU), recompute (torch.utils.checkpoint around each layer, or around those of
--recompute-layers; what --save names is not computed again; with --recompute-mlp-layers around norm and attention,
and in these layers around norm and MLP), planned (docs/examples/planned.py with --device-bytes,
beside the checkpoints of --recompute-layers), trl (TRL's OffloadActivations with the model's parameters registered, as
its trainer uses it; from an installed trl, or from the file that --trl names). Needs a GPU. Prints a JSON object for
each mode: median milliseconds of the steps after two warm-up steps, and torch's max_memory_allocated, of all steps and
of those after the warm-up. With --trace, one step more runs under the profiler, whose trace becomes
FOLDER/MODE.trace.json.gz, for offsim calibrate --from.

The model: each layer is rms_norm, one qkv linear split into views, causal attention with grouped queries,
an output linear, a residual add, rms_norm, one gate-up linear chunked into views, silu(gate) * up, a down
linear, a residual add; all in bf16, no biases. Head: rms_norm, linear, logits in fp32, cross-entropy.
Gradients are kept; there is no optimizer.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

ATEN = torch.ops.aten
SAVED = {"attention": [ATEN._scaled_dot_product_cudnn_attention.default, ATEN._scaled_dot_product_flash_attention.default],
         "mm": [ATEN.mm.default]}


PLANNED = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/planned.py"


class Layer(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.heads, self.groups, self.width = o.heads, o.groups, o.hidden // o.heads
        kv = self.groups * self.width
        self.norm1 = nn.Parameter(torch.ones(o.hidden))
        self.qkv = nn.Linear(o.hidden, o.hidden + 2 * kv, bias=False)
        self.proj = nn.Linear(o.hidden, o.hidden, bias=False)
        self.norm2 = nn.Parameter(torch.ones(o.hidden))
        self.gate_up = nn.Linear(o.hidden, 2 * o.ffn, bias=False)
        self.down = nn.Linear(o.ffn, o.hidden, bias=False)
        self.parts = [o.hidden, kv, kv]

    def attention(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = self.qkv(x).split(self.parts, dim=-1)
        q = q.view(batch, tokens, self.heads, self.width).transpose(1, 2)
        k = k.view(batch, tokens, self.groups, self.width).transpose(1, 2)
        v = v.view(batch, tokens, self.groups, self.width).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.proj(out.transpose(1, 2).reshape(batch, tokens, hidden))

    def normed_attention(self, x):
        return self.attention(F.rms_norm(x, x.shape[-1:], self.norm1, 1e-5))

    def normed_mlp(self, x):
        gate, up = self.gate_up(F.rms_norm(x, x.shape[-1:], self.norm2, 1e-5)).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)

    def forward(self, x, around_attention=lambda part, x: part(x), around_mlp=lambda part, x: part(x)):
        x = x + around_attention(self.normed_attention, x)
        return x + around_mlp(self.normed_mlp, x)


class Model(nn.Module):
    def __init__(self, o, recomputed, recomputed_mlps=None):
        super().__init__()
        self.recomputed, self.recomputed_mlps = recomputed, recomputed_mlps
        self.kept = [op for name in o.save for op in SAVED[name]]
        self.embedding = nn.Embedding(o.vocabulary, o.hidden)
        self.layers = nn.ModuleList(Layer(o) for _ in range(o.layers))
        self.norm = nn.Parameter(torch.ones(o.hidden))
        self.head = nn.Linear(o.hidden, o.vocabulary, bias=False)

    def keeps(self, _, op, *args, **kwargs):
        """A half's last product is its result: nothing that is computed again reads it."""
        lasts = [weight for layer in self.layers for weight in (layer.proj.weight, layer.down.weight)]
        is_last = self.recomputed_mlps is not None and op == ATEN.mm.default and \
            any(args[1].untyped_storage().data_ptr() == weight.untyped_storage().data_ptr() for weight in lasts)
        return CheckpointPolicy.MUST_SAVE if op in self.kept and not is_last else CheckpointPolicy.PREFER_RECOMPUTE

    def checkpoint(self, part, x):
        how = {"context_fn": lambda: create_selective_checkpoint_contexts(self.keeps)} if self.kept else {}
        return checkpoint(part, x, use_reentrant=False, **how)

    def run_layer(self, i, layer, x):
        if self.recomputed_mlps is None:
            return self.checkpoint(layer, x) if i in self.recomputed else layer(x)
        around = {"around_attention": i in self.recomputed, "around_mlp": i in self.recomputed_mlps}
        return layer(x, **{name: self.checkpoint for name, is_around in around.items() if is_around})

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for i, layer in enumerate(self.layers):
            x = self.run_layer(i, layer, x)
        logits = self.head(F.rms_norm(x, x.shape[-1:], self.norm, 1e-5)).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def module_of(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offloading(mode, model, o):
    if mode == "planned":
        return module_of(PLANNED).Planned(model, o.device_bytes, saved=o.saved_tensors)
    if mode != "trl":
        return Nothing()
    if o.trl:
        module = module_of(o.trl)
    else:
        from trl.models import activation_offloading as module
    context = module.OffloadActivations(use_streams=True)
    if hasattr(context, "update_model_params"):
        context.update_model_params(model)
    return context


def recomputed(mode, o):
    if mode == "recompute" and not o.recompute_layers:
        return set(range(o.layers))
    return set(o.recompute_layers) if mode in ("recompute", "planned") else set()


def measure(mode, o):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model(o, recomputed(mode, o), o.recompute_mlp_layers).to(torch.bfloat16)
        tokens = torch.randint(o.vocabulary, (1, o.tokens))
        labels = torch.randint(o.vocabulary, (1, o.tokens))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    context = offloading(mode, model, o)
    torch.cuda.reset_peak_memory_stats()

    def step():
        begin = time.perf_counter()
        with context:
            loss = model(tokens, labels)
        loss.backward()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - begin)

    torch.cuda.synchronize()
    for _ in range(2):
        step()
    first_peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = [step() for _ in range(o.steps)]
    peak = torch.cuda.max_memory_allocated()
    print(json.dumps({"mode": mode, "step_ms": round(statistics.median(times), 2),
                      "max_memory_allocated": max(first_peak, peak), "steady_peak": peak,
                      "static": torch.cuda.memory_allocated(), "torch": torch.__version__,
                      "gpu": torch.cuda.get_device_name()}), flush=True)
    if o.trace:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            step()
        recorded.export_chrome_trace(str(pathlib.Path(o.trace) / f"{mode}.trace.json.gz"))


def layers(text):
    return [int(word) for word in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("modes", nargs="+", choices=["keep", "recompute", "planned", "trl"])
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--hidden", type=int, default=4096)
    p.add_argument("--ffn", type=int, default=14336)
    p.add_argument("--heads", type=int, default=32)
    p.add_argument("--groups", type=int, default=8)
    p.add_argument("--vocabulary", type=int, default=32000)
    p.add_argument("--tokens", type=int, default=8192)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--device-bytes", type=int, default=1 << 31, help="planned: of saved tensors")
    p.add_argument("--saved-tensors", metavar="FILE", help="planned: what offsim plan --saved-tensors printed")
    p.add_argument("--recompute-layers", type=layers, default=[], metavar="LAYER,...")
    p.add_argument("--recompute-mlp-layers", type=layers, metavar="LAYER,...")
    p.add_argument("--save", action="append", default=[], choices=SAVED)
    p.add_argument("--trace", metavar="FOLDER", help="profile one more step of each mode")
    p.add_argument("--trl", help="TRL's activation_offloading.py, where trl is not installed")
    o = p.parse_args()
    for mode in o.modes:
        try:
            measure(mode, o)
        except ImportError as error:
            print(json.dumps({"mode": mode, "error": str(error)}))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
