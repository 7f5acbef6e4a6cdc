#!/usr/bin/env python3
"""What autograd saves in a forward of the families of transformers, on a CPU: for each tiny config.json the
parameters, the saved slots and the bytes of each saved storage in the order in which it is first packed. Also
the parameters of published models.
Storages of parameters and buffers do not count, nor slots of buffers, nor what is dropped before the forward ends (the
graph of a router's groups, of which only indices are used). Needs torch and transformers; for linear attention the
Python files of flash-linear-attention and causal-conv1d and a Triton that they accept (3.5). Their kernels do nothing
here: their functions allocate and save what they do on a GPU. Not a test: it writes the figures that
tests/unit/test_hf_families.c compares.

    python3 tests/peers/hf_saved.py [NAME...] > saved.json; mv saved.json tests/data/hf
    python3 tests/peers/hf_saved.py --list NAME ATTENTION     every slot, with the line that saved it
"""
import json
import pathlib
import sys
import types
import weakref

import torch


def without_kernels():
    """Triton's launches, and the extension of causal-conv1d, do nothing."""
    from triton.runtime.jit import JITFunction, KernelInterface
    for kind in (KernelInterface, JITFunction):
        kind.__getitem__ = lambda self, grid: lambda *args, **named: None
    extension = types.ModuleType("causal_conv1d_cuda")
    extension.causal_conv1d_fwd = extension.causal_conv1d_bwd = extension.causal_conv1d_update = lambda *args: None
    sys.modules["causal_conv1d_cuda"] = extension


try:
    without_kernels()
except ImportError:
    pass
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "data" / "hf" / "tiny"
BATCH, SEQUENCE = 2, 16


# Where a CPU keeps in the model's type what a GPU keeps in fp32 (native_layer_norm: mean, rstd).
FP32 = {"starcoder2"}


def dtype_of(name):
    return torch.float32 if name in FP32 else torch.bfloat16


# Experts as Axolotl makes them: axolotl's src in PYTHONPATH.
LINEARIZED = {"llama4-linearized"}


def linearize():
    from axolotl.monkeypatch.models.llama4.modeling import patch_llama4_linearized_modeling
    from transformers.models.llama4 import modeling_llama4
    modeling_llama4.Llama4PreTrainedModel._init_weights = lambda self, module: None  # it knows the other experts
    return patch_llama4_linearized_modeling()


def model_of(name, attention):
    restore = linearize() if name in LINEARIZED else lambda: None
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    kind = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
    config = AutoConfig.for_model(config.pop("model_type"), **config)
    config.use_cache = False
    torch.manual_seed(1)
    model = kind.from_config(config, attn_implementation=attention, dtype=dtype_of(name))
    restore()
    return model.to(dtype_of(name)).train()


def check_packages(name):
    """Without these packages transformers runs linear attention by operators of its own, which save other tensors."""
    if "linear_num_value_heads" in (CONFIGS / f"{name}.json").read_text():
        import causal_conv1d  # noqa: F401
        import fla  # noqa: F401


def where():
    frame = sys._getframe(2)
    while frame is not None and "/transformers/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.split('/')[-1]}:{frame.f_lineno}"


class Packed:
    """What a hook keeps of a saved tensor."""

    def __init__(self, tensor):
        self.tensor = tensor


def saved_of(model, listing=None):
    buffers = {t.untyped_storage().data_ptr() for t in model.buffers()}
    resident = buffers | {t.untyped_storage().data_ptr() for t in model.parameters()}
    packed, kept = [], []

    def pack(t):
        kept.append(t)
        holder = Packed(t)
        packed.append((weakref.ref(holder), t.untyped_storage(), f"{tuple(t.shape)} {str(t.dtype)[6:]}", where()))
        return holder

    ids = torch.randint(3, 256, (BATCH, SEQUENCE))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p.tensor):
        loss = model(input_ids=ids, labels=ids).loss
    slots, storages = 0, {}
    for alive, storage, shown, place in packed:
        if alive() is None:
            continue
        slots += storage.data_ptr() not in buffers
        if listing is not None:
            new = "resident" if storage.data_ptr() in resident else "" if storage.data_ptr() in storages else "NEW"
            listing.append(f"{slots} {shown} storage {storage.nbytes()} {new} {place}")
        if storage.data_ptr() not in resident:
            storages.setdefault(storage.data_ptr(), storage.nbytes())
    assert loss.requires_grad
    return slots, list(storages.values())


def record(name, attention):
    check_packages(name)
    model = model_of(name, attention)
    slots, storages = saved_of(model)
    return {"model": name, "attention": attention, "dtype": str(dtype_of(name))[6:],
            "parameters": sum(p.numel() for n, p in model.named_parameters() if ".visual." not in n),
            "slots": slots, "storages": storages}


def count(name):
    """Parameters of a published model, without memory for them; the text model's of one with images."""
    config = json.loads((CONFIGS.parent / f"{name}.json").read_text())
    kind = AutoModelForCausalLM
    if "text_config" in config:
        config = config["text_config"]
    elif "vision_config" in config:
        kind = AutoModelForImageTextToText
    config = AutoConfig.for_model(config.pop("model_type"), **config)
    with torch.device("meta"):
        model = kind.from_config(config)
    return {"model": name,
            "parameters": sum(p.numel() for n, p in model.named_parameters() if ".visual." not in n)}


# A CPU has no kernel for values narrower than keys and takes products of its own.
EAGER_ONLY = {"deepseek-v2", "deepseek-v3"}


def main():
    if sys.argv[1:2] == ["--list"]:
        listing = []
        saved_of(model_of(sys.argv[2], sys.argv[3]), listing)
        print("\n".join(listing))
        return
    names = sys.argv[1:] or sorted(p.stem for p in CONFIGS.glob("*.json"))
    runs = []
    for name in names:
        for attention in ("eager",) if name in EAGER_ONLY else ("eager", "sdpa"):
            try:
                runs.append(record(name, attention))
            except Exception as error:
                print(name, attention, type(error).__name__, str(error)[:300], file=sys.stderr)
    runs = ",\n  ".join(json.dumps(run) for run in runs)
    counts = [count(p.stem) for p in sorted(CONFIGS.parent.glob("*.json"))
              if p.stem != "saved"]
    counts = ",\n  ".join(json.dumps(c) for c in counts)
    print(f'{{"torch": "{torch.__version__}", "transformers": "{transformers.__version__}",\n'
          f' "batch": {BATCH}, "sequence": {SEQUENCE}, "runs": [\n  {runs}],\n'
          f' "published": [\n  {counts}]}}')


if __name__ == "__main__":
    main()
