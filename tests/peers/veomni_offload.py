"""Records what VeOmni's own custom_save_on_cpu does with the saved tensors of a tiny Llama on the CPU, in bytes of each
that leaves and comes back: tests/data/veomni_offload.json, which tests/systems/test_veomni.py compares. Needs torch,
transformers, peft, and veomni/distributed/offloading.py of VeOmni.

    python3 tests/peers/veomni_offload.py offloading.py > tests/data/veomni_offload.json
"""

import contextlib
import json
import pathlib
import sys
import types

import peft
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {"hidden_size": 1024, "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 64}
TOKENS = 64
# Checkpoints, adapters, GiB that stay.
RUNS = [(False, False, 0), (False, False, 0.002), (True, False, 0), (True, False, 0.002), (False, True, 0)]


def load(path):
    """The module without the rest of VeOmni, of which these hooks use nothing."""
    device = types.ModuleType("veomni.utils.device")
    device.empty_cache = device.get_device_id = device.get_device_type = None
    sys.modules["veomni.utils.device"] = device
    module = types.ModuleType("veomni.distributed.offloading")
    module.__package__ = "veomni.distributed"
    for package in ("veomni", "veomni.utils", "veomni.distributed"):
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = []
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), module.__dict__)
    return module


def recorded(hooks, out, back):
    """The bytes of each tensor that leaves, and of each that comes back, in order."""
    if isinstance(hooks, contextlib.nullcontext):
        return hooks
    pack, unpack = hooks.pack_hook, hooks.unpack_hook

    def packing(tensor):
        packed = pack(tensor)
        if packed[0].name == "OFFLOAD":
            out.append(packed[2].nbytes)
        return packed

    def unpacking(packed):
        if packed[0].name == "OFFLOAD":
            back.append(packed[2].nbytes)
        return unpack(packed)

    hooks.pack_hook, hooks.unpack_hook = packing, unpacking
    return hooks


def model_of(checkpoints, adapters):
    config = LlamaConfig(**SHAPE, use_cache=False, attn_implementation="eager")
    model = LlamaForCausalLM(config).to(torch.bfloat16).train()
    if checkpoints:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if adapters:
        model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear"), autocast_adapter_dtype=False)
    return model


def record(module, checkpoints, adapters, limit):
    out, back, again = [], [], []
    model = model_of(checkpoints, adapters)
    forward, backward = module.build_activation_offloading_context(True, checkpoints, limit)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    with recorded(forward, out, back):
        loss = model(tokens, labels=tokens).loss
    with recorded(backward, again, again):
        loss.backward()
    assert not again, "a non-reentrant recomputation shows nothing"
    return {"checkpoints": checkpoints, "adapters": adapters, "activation_gpu_limit": limit, "out": out, "back": back}


runs = ",\n  ".join(json.dumps(record(load(sys.argv[1]), *run)) for run in RUNS)
print(f'{{"torch": "{torch.__version__}", "transformers": "{transformers.__version__}",\n'
      f' "shape": {json.dumps(SHAPE)}, "tokens": {TOKENS},\n "runs": [\n  {runs}]}}')
