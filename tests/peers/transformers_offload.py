"""Records what transformers' activation checkpointing with offload gives to save_on_cpu, on a tiny model on the CPU:
tests/data/transformers_offload.json. Needs transformers 5.17 or later.

    python3 tests/peers/transformers_offload.py > tests/data/transformers_offload.json
"""

import json

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, modeling_utils

LAYERS, TOKENS, HIDDEN = 5, 8, 32


def record(every_n_layers, reentrant):
    """The layers whose input is packed, and unpacked, in order; every saved tensor must be a layer's input."""
    calls, inputs = {"pack": [], "unpack": []}, []

    class Hooks(torch.autograd.graph.saved_tensors_hooks):
        def __init__(self, pin_memory, device_type):
            assert pin_memory and device_type

            def pack(tensor):
                layer = next(i for i, pointer in inputs if pointer == tensor.data_ptr())
                calls["pack"].append(layer)
                return layer, tensor

            def unpack(packed):
                calls["unpack"].append(packed[0])
                return packed[1]

            super().__init__(pack, unpack)

    config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=LAYERS, num_attention_heads=4,
                         vocab_size=64, use_cache=False)
    model = LlamaForCausalLM(config).train()
    for i, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda _, args, i=i: inputs.append((i, args[0].data_ptr())))
    modeling_utils.save_on_cpu = Hooks
    model.activation_checkpointing_enable({"use_reentrant": reentrant}, every_n_layers=every_n_layers, offload=True)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    model(tokens, labels=tokens).loss.backward()
    return calls


print(json.dumps({
    "transformers": transformers.__version__, "layers": LAYERS,
    "runs": [{"every_n_layers": n, "use_reentrant": reentrant, **record(n, reentrant)}
             for n in (1, 2, 3) for reentrant in (False, True)],
}, indent=1))
