#!/usr/bin/env python3
"""What FSDP and verl's activation offload really do with the model of tests/data/fsdp-8-layers.yaml: the
peak over static memory and the step time of each setting. Needs two GPUs, torch and verl's
verl/utils/activation_offload.py. Not a test: the figures of tests/systems/test_verl.py were taken from its output.

    torchrun --nproc_per_node 2 tests/peers/fsdp_reference.py SETTING...     (fsdp2_fp32_ckpt_verl)
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

from hf_reference import PlainLayer
from verl.utils.activation_offload import enable_activation_offloading

LAYERS, HIDDEN, TOKENS, VOCABULARY = 8, 4096, 4096, 32000


class Layer(PlainLayer):
    """As in transformers, the checkpoint is inside the module that FSDP wraps."""

    recompute = False

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False) if self.recompute else super().forward(x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.Parameter(torch.ones(HIDDEN))
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(F.rms_norm(x, (HIDDEN,), self.norm)).float()
        return F.cross_entropy(logits.view(-1, VOCABULARY), ids.view(-1))


def wrapped(model, version, mixed):
    types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if mixed else {}
    if version == "fsdp":
        return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=False,
                    device_id=torch.cuda.current_device(), mixed_precision=MixedPrecision(**types))
    for layer in model.layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(**types))
    return fully_shard(model, mp_policy=MixedPrecisionPolicy(**types))


def measure(name):
    version, stored, recompute, offload = name.split("_")
    with torch.device("cuda"):
        model = Model()
    if stored == "bf16":
        model = model.to(torch.bfloat16)
    for layer in model.layers:
        layer.recompute = recompute == "ckpt" and offload == "none"
    model = wrapped(model, version, stored == "fp32").train()
    if offload == "verl":
        enable_activation_offloading(model, version, recompute == "ckpt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    ids = torch.randint(0, VOCABULARY, (1, TOKENS), device="cuda")
    times = []
    for _ in range(5):
        dist.barrier()
        torch.cuda.synchronize()
        static = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        model(ids).backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    if dist.get_rank() == 0:
        print(name, torch.cuda.max_memory_allocated() - static, f"{min(times):.1f} ms", flush=True)


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    for name in sys.argv[1:]:
        measure(name)


if __name__ == "__main__":
    main()
