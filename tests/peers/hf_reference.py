#!/usr/bin/env python3
"""What eager PyTorch really does with the models of model.implementation hf: peaks, saved tensors,
allocations at the peak and kernels. Needs a GPU, torch and, for `qwen3` and `lora`, transformers
and peft. Not a test: its output is what the figures of tests/fidelity/test_hf.py were taken from.

    python3 tests/peers/hf_reference.py DIRECTORY [plain] [qwen3] [lora]
"""
import collections
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

TOKENS = 8192


class PlainLayer(torch.nn.Module):
    """One fused linear for query, key and value, one for gate and up; no positions."""

    def __init__(self, h=4096, ffn=14336, heads=32, groups=8):
        super().__init__()
        self.heads, self.groups, self.width, self.h = heads, groups, h // heads, h

        def linear(i, o):
            return torch.nn.Linear(i, o, bias=False)

        self.norm1 = torch.nn.Parameter(torch.ones(h))
        self.qkv = linear(h, h + 2 * groups * self.width)
        self.out = linear(h, h)
        self.norm2 = torch.nn.Parameter(torch.ones(h))
        self.gate_up = linear(h, 2 * ffn)
        self.down = linear(ffn, h)

    def forward(self, x):
        b, s, h = x.shape
        mixed = self.qkv(F.rms_norm(x, (h,), self.norm1))
        sizes = [h, self.groups * self.width, self.groups * self.width]
        q, k, v = (part.view(b, s, -1, self.width).transpose(1, 2)
                   for part in mixed.split(sizes, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, h))
        gate, up = self.gate_up(F.rms_norm(x, (h,), self.norm2)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Plain(torch.nn.Module):
    def __init__(self, layers=16, h=4096, vocabulary=32000):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, h)
        self.layers = torch.nn.ModuleList(PlainLayer(h) for _ in range(layers))
        self.norm = torch.nn.Parameter(torch.ones(h))
        self.head = torch.nn.Linear(h, vocabulary, bias=False)
        self.recompute = None

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x) if self.recompute is None else checkpoint(
                layer, x, use_reentrant=self.recompute)
        x = F.rms_norm(x, (x.shape[-1],), self.norm)
        logits = self.head(x).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def saved_list(step, path):
    lines, storages, total = [], {}, 0

    def pack(t):
        nonlocal total
        frame = sys._getframe(1)
        while frame is not None and "/torch/nn/" in frame.f_code.co_filename:
            frame = frame.f_back
        where = f"{frame.f_code.co_filename.split('/')[-1]}:{frame.f_lineno}"
        view = "" if t.is_contiguous() else " noncontiguous"
        kind = "Parameter" if isinstance(t, torch.nn.Parameter) else ""
        storage = t.untyped_storage()
        new = "" if storage.data_ptr() in storages else " NEW"
        storages[storage.data_ptr()] = storage.nbytes()
        total += t.numel() * t.element_size()
        lines.append(f"{len(lines)} {tuple(t.shape)} {str(t.dtype)[6:]} offset {t.storage_offset()}"
                     f" storage {storage.nbytes()}{view}{new} {kind} {where}")
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = step.forward()
    del loss
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    print(f"  saved slots {len(lines)} bytes {total} storages {sum(storages.values())}")


class Step:
    def __init__(self, model, ids, call):
        self.model, self.ids, self.call = model, ids, call

    def forward(self):
        return self.call(self.model, self.ids)

    def run(self):
        self.forward().backward()


def at_peak(step, path):
    """Blocks that were allocated inside one step and live at its peak."""
    torch.cuda.memory._record_memory_history(max_entries=1000000, stacks="python", context="alloc")
    step.run()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    live, now, peak, best, outside = {}, 0, 0, {}, 0
    for e in trace:
        if e["action"] == "alloc":
            live[e["addr"]] = e
            now += e["size"]
        elif e["action"] == "free_requested":
            if e["addr"] in live:
                del live[e["addr"]]
            else:
                outside += e["size"]
            now -= e["size"]
        if now > peak:
            peak, best = now, dict(live)
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"peak {peak} over the start; freed from before {outside}\n")
        counts = collections.OrderedDict()
        for e in best.values():
            frames = [f"{f['filename'].split('/')[-1]}:{f['line']}" for f in e.get("frames", [])[:3]]
            key = (e["size"], " ".join(frames))
            counts[key] = counts.get(key, 0) + 1
        for (size, frames), n in counts.items():
            out.write(f"{n} x {size} {frames}\n")
        out.write("\nall\n")
        for e in trace:
            if e["action"] in ("alloc", "free_requested") and e["size"] >= 4096:
                frames = [f"{f['filename'].split('/')[-1]}:{f['line']}"
                          for f in e.get("frames", [])[:2]]
                out.write(f"{e['action'][0]} {e['size']} {e['addr']:x} {' '.join(frames)}\n")
    print(f"  in one step: peak {peak} over the start")


def kernels(step, path):
    step.run()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as prof:
        step.run()
        torch.cuda.synchronize()
    found = sorted((e for e in prof.events() if e.device_type == torch.autograd.DeviceType.CUDA),
                   key=lambda e: e.time_range.start)
    with open(path, "w", encoding="utf-8") as out:
        for e in found:
            out.write(f"{e.time_range.start:.1f} {e.time_range.end - e.time_range.start:.1f}"
                      f" {e.name[:200]}\n")
    busy = sum(e.time_range.end - e.time_range.start for e in found)
    print(f"  kernels {len(found)} busy {busy / 1000:.2f} ms")


def measure(name, step, directory, details=True):
    print(name)
    step.run()
    torch.cuda.synchronize()
    static = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step.run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    print(f"  static {static} peak {peak} over {peak - static}")
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        step.run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    print("  step ms " + " ".join(f"{1000 * t:.1f}" for t in times))
    if details:
        saved_list(step, f"{directory}/{name}_saved.txt")
        kernels(step, f"{directory}/{name}_kernels.txt")
        at_peak(step, f"{directory}/{name}_memory.txt")


def plain(directory):
    model = Plain().to(torch.bfloat16).cuda()
    ids = torch.randint(0, 32000, (1, TOKENS), device="cuda")
    step = Step(model, ids, lambda m, i: m(i, i))
    measure("plain", step, directory)
    model.recompute = False
    measure("plain_checkpoint", step, directory)
    model.recompute = True
    measure("plain_reentrant", step, directory, details=False)


def qwen3_model(layers):
    from transformers import Qwen3Config, Qwen3ForCausalLM
    config = Qwen3Config(vocab_size=151936, hidden_size=4096, intermediate_size=12288,
                         num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=128, tie_word_embeddings=False, use_cache=False,
                         max_position_embeddings=40960, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    return model


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss


def qwen3(directory):
    model = qwen3_model(4)
    ids = torch.randint(0, 151936, (1, TOKENS), device="cuda")
    step = Step(model, ids, loss_of)
    measure("qwen3", step, directory)
    for reentrant in (False, True):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={
            "use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
        measure(f"qwen3_checkpoint_{'re' if reentrant else 'non'}", step, directory,
                details=not reentrant)
    model.gradient_checkpointing_disable()
    model.set_attn_implementation("eager")
    short = torch.randint(0, 151936, (1, 2048), device="cuda")
    measure("qwen3_eager", Step(model, short, loss_of), directory, details=False)
    saved_list(Step(model, short, loss_of), f"{directory}/qwen3_eager_saved.txt")


def lora(directory):
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(qwen3_model(4), LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear"))
    print("  adapters", {str(p.dtype) for p in model.parameters() if p.requires_grad},
          sum(p.numel() for p in model.parameters() if p.requires_grad))
    ids = torch.randint(0, 151936, (1, TOKENS), device="cuda")
    measure("lora", Step(model, ids, loss_of), directory)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    measure("lora_checkpoint", Step(model, ids, loss_of), directory, details=False)


def main():
    directory = sys.argv[1]
    print(torch.__version__, torch.cuda.get_device_name())
    for name, part in (("plain", plain), ("qwen3", qwen3), ("lora", lora)):
        if name in sys.argv[2:] or len(sys.argv) == 2:
            try:
                part(directory)
            except Exception as error:  # the other parts are worth having
                print(f"{name}: {type(error).__name__}: {error}")
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
