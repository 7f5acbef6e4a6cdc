#!/usr/bin/env python3
"""Trains models that fill 40 GB and more on this machine's GPUs, in fast arithmetic, with every offload system.

    python3 tests/gpu/same_bits.py [--offsim out/release/offsim] [--gpus N] [--steps 10] [--only TEXT]

Every setting of a model must have the fingerprints of losses, gradients and parameters, step by
step, of the model's first setting, which keeps everything, and the plan's peak of requested device
memory to the byte. Prints a line for each as soon as it has run, and at the end which differ; exit
status 1: one differs, or did not run. With --gpus N, N of them at once, each on a separate GPU.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FULL = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
CHECKPOINTED, REENTRANT = [*FULL, "use_reentrant=false"], [*FULL, "use_reentrant=true"]
FINE = ["fine_grained_activation_offloading=true"]
DENSE = [*FINE, "offload_modules=attn_norm,qkv_linear,core_attn,attn_proj,mlp_norm"]
EXPERTS = [*FINE, "offload_modules=attn_norm,qkv_linear,core_attn,attn_proj,mlp_norm,expert_fc1,moe_act"]
LAYERS = ["cpu_offloading=true"]
SELECTIVE = ["offload.system=selective_checkpointing", *CHECKPOINTED]
SHARDED = ["use_distributed_optimizer=true"]
HOST_EXPERTS = ["moe_use_offloading_experts=true"]
CHUNKED = [*SHARDED, "chunked_optimizer_state_offload=true"]

ADAM = ["optimizer=adamw_torch", "keep_gradients=false"]

# Models: the scenario, and what all settings have. FSDP2 rounds gradients otherwise than a single process.
MODELS = {
    "torch": ("torch", ADAM),
    "torch under FSDP2": ("torch", [*ADAM, "fsdp=fsdp2", "parallel.world_size=1"]),
    "llama": ("llama", ["num_layers=8"]),
    "mixture": ("mixture", ["num_layers=6", "moe_layer_freq=[0,1,1,1,1,1]", "seq_length=8192"]),
}

# Model, name, settings, options of offsim run. The first of a model is what the others are held against.
SETTINGS = [
    ("torch", "nothing", [], []),
    ("torch", "trl", ["offload.system=trl"], []),
    ("torch", "trl, parameters not registered", ["offload.system=trl", "trl_params_registered=false"], []),
    ("torch", "trl_sync", ["offload.system=trl_sync"], []),
    ("torch", "trl, checkpoints", ["offload.system=trl", *CHECKPOINTED], []),
    ("torch", "save_on_cpu", ["offload.system=save_on_cpu"], []),
    ("torch", "veomni", ["offload.system=veomni"], []),
    ("torch", "planned", ["offload.system=planned"], []),
    ("torch", "planned, every second layer again",
     ["offload.system=planned", *CHECKPOINTED, "recompute_layers=([0,1]*8)"], []),
    ("torch", "planned, MLP's products of every second layer",
     ["offload.system=planned", *CHECKPOINTED, "selective_checkpointing=true",
      "selective_checkpointing_save=attention,aten::mm", "selective_checkpointing_mlp_layers=([0,1]*8)"], []),
    ("torch", "planned, norms before attention and every second layer's MLP again",
     ["offload.system=planned", *CHECKPOINTED, "selective_checkpointing=true",
      "selective_checkpointing_save=attention,aten::mm", "recompute_mlp_layers=([0,1]*8)"], []),
    ("torch", "planned, norms and every second layer's activation again",
     ["offload.system=planned", *CHECKPOINTED, "selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm",
      "recompute_mlp_layers=1", "selective_checkpointing_activation_layers=([1,0]*8)"], []),
    ("torch", "checkpoints", CHECKPOINTED, []),
    ("torch", "hidden_states", ["offload.system=hidden_states", *CHECKPOINTED], []),
    ("torch", "hidden_states_reentrant", ["offload.system=hidden_states_reentrant", *REENTRANT], []),
    ("torch", "transformers", ["offload.system=transformers", *CHECKPOINTED], []),
    ("torch", "deepspeed", ["offload.system=deepspeed", *REENTRANT], []),
    ("torch", "axolotl_disk", ["offload.system=axolotl_disk", *REENTRANT], []),
    ("torch", "selective_checkpointing", SELECTIVE, []),
    ("torch", "selective_checkpointing, hidden states", [*SELECTIVE, "selective_checkpointing_hidden_states=true"], []),
    ("torch under FSDP2", "nothing", [], []),
    ("torch under FSDP2", "veomni", ["offload.system=veomni"], []),
    ("torch under FSDP2", "verl, checkpoints", ["offload.system=verl", *CHECKPOINTED], []),
    ("llama", "nothing", [], []),
    ("llama", "nothing, again", [], []),
    ("llama", "nothing, malloc_async", [], ["--backing", "malloc_async"]),
    ("llama", "five modules", DENSE, []),
    ("llama", "five modules, malloc_async", DENSE, ["--backing", "malloc_async"]),
    ("llama", "five modules, guards", DENSE, ["--guards"]),
    ("llama", "half", [*DENSE, "activation_offload_fraction=0.5"], []),
    ("llama", "one copy in flight", [*DENSE, "fine_grained_offloading_max_inflight_offloads=1"], []),
    ("llama", "pr7575", [*DENSE, "offload.mode=pr7575"], []),
    ("llama", "te_v1, 7 layers", [*LAYERS, "offload.system=te_v1", "cpu_offloading_num_layers=7"], []),
    ("llama", "te_v2, 6 layers", [*LAYERS, "offload.system=te_v2", "cpu_offloading_num_layers=6"], []),
    ("llama", "planned", ["offload.system=planned"], []),
    ("llama", "optimizer states away", [*SHARDED, "offload_optimizer_states=true", "megatron_day=2026-08-17"], []),
    ("llama", "optimizer states in chunks", [*CHUNKED, "optimizer_state_offload_chunk_size_mb=256"], []),
    ("llama", "half of them in one chunk", [*CHUNKED, "optimizer_state_offload_fraction=0.5"], []),
    ("llama", "full recomputation", FULL, []),
    ("llama", "layer_input", [*FULL, *FINE, "offload_modules=layer_input"], []),
    ("mixture", "nothing", [], []),
    ("mixture", "seven modules", EXPERTS, []),
    ("mixture", "planned", ["offload.system=planned"], []),
    ("mixture", "full recomputation", FULL, []),
    ("mixture", "experts on the host, 8 chunks", [*HOST_EXPERTS, "moe_offloading_num_chunks=8"], []),
    ("mixture", "experts on the host, 4 chunks, first products again",
     [*HOST_EXPERTS, "moe_offloading_num_chunks=4", "recompute_granularity=selective", "recompute_modules=moe_act"], []),
    ("mixture", "experts on the host, modules of attention",
     [*HOST_EXPERTS, "moe_offloading_num_chunks=4", *FINE, "offload_modules=attn_norm,core_attn,attn_proj"], []),
]


def command(o, model, settings, options):
    scenario, common = MODELS[model]
    return [o.offsim, "run", "--on", "cuda", "--gpus", "1", "--steps", str(o.steps), "--json", *options,
            str(ROOT / f"traces/recorded/models/{scenario}.yaml"),
            *(word for setting in [*common, "offload.mode=fixed", *settings] for word in ("--set", setting))]


def run(o, free_gpus, model, name, settings, options):
    """What each step had; None: it did not run, or its peak is not the plan's. Prints a line about it."""
    gpu, begin = free_gpus.get(), time.time()
    done = subprocess.run(command(o, model, settings, options), text=True, capture_output=True, check=False,
                          env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)})
    free_gpus.put(gpu)
    title = f"{model + ', ' + name:48}"
    if done.returncode != 0:
        print(f"{title} {done.stderr.strip()[-300:]}", flush=True)
        return None
    told = json.loads(done.stdout)
    rank, last = told["gpus"]["ranks"][0], told["steps"][-1]
    peak, planned = told["device_peak_bytes"][0], told["plan_peak_bytes"][0]
    print(f"{title} requested {peak:>12} planned {planned - peak:+} live {rank['live_peak_bytes']:>12} driver {rank['driver_used_bytes']:>12} pinned "
          f"{rank['pinned_peak_bytes']:>12} guards {rank['broken_guards']}  loss {last['loss_bits']} gradients "
          f"{last['grads_fingerprint'][:8]} parameters {last['params_fingerprint'][:8]}  {time.time() - begin:.0f} s",
          flush=True)
    return told["steps"] if peak == planned else None


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--offsim", default=str(ROOT / "out/release/offsim"))
    p.add_argument("--gpus", type=int, default=1)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--only", default="", help="settings that have this in `model, name`; and the first of each model")
    o = p.parse_args()
    first = {}
    for model, name, *_ in SETTINGS:
        first.setdefault(model, name)
    models = {model for model, name, *_ in SETTINGS if o.only in f"{model}, {name}"}
    chosen = [s for s in SETTINGS if s[0] in models and (s[1] == first[s[0]] or o.only in f"{s[0]}, {s[1]}")]
    if not chosen:
        p.error(f"no setting has {o.only!r} in its model and name")
    free_gpus = queue.Queue()
    for gpu in range(o.gpus):
        free_gpus.put(gpu)
    with concurrent.futures.ThreadPoolExecutor(o.gpus) as pool:
        told = dict(zip(((s[0], s[1]) for s in chosen), pool.map(lambda s: run(o, free_gpus, *s), chosen)))
    wrong = [f"{model}, {name}" for (model, name), steps in told.items()
             if steps is None or steps != told[model, first[model]]]
    print(f"{len(told)} settings, {o.steps} steps each: " + ("different: " + "; ".join(wrong) if wrong else "the same bits"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
