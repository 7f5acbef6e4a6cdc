"""Copies and waits of `offsim plan` compared with those that Megatron-LM's own offload manager issues, over drawn settings.

OFFSIM_MEGATRON_MANAGER names copies of megatron/core/pipeline_parallel/fine_grained_activation_offload.py: main's of August
2026 as "as_released=FILE", and after it, with commas, that of a tag after the version of software.megatron:
"core_v0.18=FILE", and that of pull request #5218, "layer_input=FILE". tests/peers/megatron_manager.py runs them; for the modes fixed and pr7575 main's, with the changes of
megatron_manager_fixes.py.
"""

import collections
import json
import os
import random
import re
import subprocess
import sys

import pytest

from conftest import ROOT, sets

BASE = "tests/data/small.yaml"
GIVEN = dict(entry.split("=", 1) for entry in os.environ.get("OFFSIM_MEGATRON_MANAGER", "").split(",") if entry)
SETTINGS = 250
MOST_COMMITS = 100  # of a chunk in a pass

ATTENTION = ["qkv_linear", "core_attn", "attn_proj"]
EXPERTS = ["expert_fc1", "moe_act"]
NORMS = ["attn_norm", "mlp_norm"]
MOE = ["num_experts=8", "moe_ffn_hidden_size=1024", "moe_grouped_gemm=true", "moe_router_topk=2",
       "moe_token_dispatcher_type=alltoall", "multi_latent_attention=true", "q_lora_rank=512", "kv_lora_rank=512",
       "group_query_attention=false", "num_query_groups=null", "qk_layernorm=true"]


# ---- drawing ---------------------------------------------------------------------------------------------------------

MENDED = ["fixed", "pr7575"]
INPUTS = "layer_input"  # of the checkpoints of full recomputation
VERSIONS = ["core_v0.16", "core_v0.17", "core_v0.18", "core_v0.19"]  # and main, which is the default


def draw_inputs(r):
    """The first layer of each checkpoint has the group."""
    stages, layers_of_chunk, of_checkpoint = r.choice([1, 2, 4]), r.choice([1, 2, 3, 6]), r.choice([1, 1, 2, 4])
    virtual = r.choice([1, 1, 2]) if stages > 1 else 1
    layers, microbatches = stages * virtual * layers_of_chunk, r.choice([1, 2, 4, 8]) * (stages if virtual > 1 else 1)
    inflight, rank = r.choice([None, None, 0, 1, 2]), r.randrange(stages)
    keys = ["offload_modules=layer_input", f"num_layers={layers}", f"pipeline_model_parallel_size={stages}", f"world_size={stages}",
            f"global_batch_size={microbatches}", "use_distributed_optimizer=false", "min_offloaded_tensor_size=1024",
            "nvte_cpu_offload_v1=true", "recompute_granularity=full", "recompute_method=uniform",
            f"recompute_num_layers={of_checkpoint}"]
    if virtual > 1:
        keys.append(f"num_virtual_stages_per_pipeline_rank={virtual}")
    if inflight is not None:
        keys.append(f"fine_grained_offloading_max_inflight_offloads={inflight}")
    chunk = [["layer_input"] if layer % of_checkpoint == 0 else [] for layer in range(layers_of_chunk)]
    return keys, {"pp_rank": rank, "virtual_stages": virtual, "chunks": [chunk] * virtual, "delta_bytes": 0, "fraction": 1.0,
                  "max_inflight": inflight, "recompute": [], "overlap": False, "iterations": 2, "mended": False}


def draw(r, mode):
    """A setting as (keys, what the manager has to know), or None: not a legal one."""
    moe, stages = r.random() < 0.7, r.choice([1, 2, 4])
    virtual = r.choice([1, 1, 2]) if stages > 1 else 1
    overlap = moe and r.random() < 0.5 and (stages == 1 or virtual > 1)
    layers_of_chunk = r.choice([1, 2, 3])
    layers, microbatches = stages * virtual * layers_of_chunk, r.choice([1, 2, 4]) * (stages if virtual > 1 else 1)
    offered = ATTENTION + (EXPERTS + NORMS if moe else [])
    modules = set(r.sample(offered, r.randint(1, len(offered))))
    if "attn_proj" in modules:
        modules.add("core_attn")
    full = not overlap and r.random() < 0.3
    recompute = [] if full or r.random() < 0.5 else r.sample(
        ["layernorm", "mla_up_proj", "moe_act"] if moe else ["mlp", "layernorm"], r.randint(1, 2))
    dense_first = moe and not overlap and r.random() < 0.4 and layers > 1
    fraction = r.choice([1.0, 1.0, 0.5, 0.8, 0.3, 0.0])
    delta, inflight = r.choice([0, 0, 0, 30 << 20, 100 << 20]), r.choice([None, None, 0, 1, 2])
    if mode in VERSIONS[:3]:
        fraction, delta = 1.0, 0
    if mode in VERSIONS[:2]:
        inflight = None
    keys = [f"offload_modules={','.join(sorted(modules))}", f"num_layers={layers}", f"pipeline_model_parallel_size={stages}",
            f"world_size={stages * (2 if overlap else 1)}", f"global_batch_size={microbatches * (2 if overlap else 1)}",
            "use_distributed_optimizer=false", "min_offloaded_tensor_size=1024", "nvte_cpu_offload_v1=true",
            f"activation_offload_fraction={fraction}", f"delta_offload_bytes_across_pp_ranks={delta}"]
    keys += ["mode=as_released", f"megatron={mode}"] if mode in VERSIONS else [f"mode={mode}"]
    if virtual > 1:
        keys.append(f"num_virtual_stages_per_pipeline_rank={virtual}")
    if inflight is not None:
        keys.append(f"fine_grained_offloading_max_inflight_offloads={inflight}")
    if recompute:
        keys += ["recompute_granularity=selective", f"recompute_modules={','.join(recompute)}"]
    if overlap:
        keys += ["expert_model_parallel_size=2", "overlap_moe_expert_parallel_comm=true"]
    if moe:
        frequency = f"([0]*{layers // 2}+[1]*{layers - layers // 2})" if dense_first else "1"
        keys += [*MOE, f"moe_layer_freq={frequency}"]
    if full:
        method, of_checkpoint = r.choice(["block", "uniform"]), r.randint(1, layers_of_chunk)
        keys += ["recompute_granularity=full", f"recompute_method={method}", f"recompute_num_layers={of_checkpoint}"]
        checkpoints = [layer // of_checkpoint if method == "uniform" else layer if layer < of_checkpoint else None
                       for layer in range(layers_of_chunk)]
    rank = r.randrange(stages)
    has_experts = [moe and (not dense_first or layer >= layers // 2) for layer in range(layers)]
    chunks = [[[name for name in sorted(modules) if name in ATTENTION or (name == "attn_norm" and moe) or has_experts[layer]]
               for layer in range((c * stages + rank) * layers_of_chunk, (c * stages + rank + 1) * layers_of_chunk)]
              for c in range(virtual)]
    if full and mode in MENDED:  # a layer that is recomputed has no groups
        chunks = [[[] if checkpoints[i] is not None else names for i, names in enumerate(chunk)] for chunk in chunks]
    return keys, {"pp_rank": rank, "virtual_stages": virtual, "chunks": chunks, "delta_bytes": delta, "fraction": fraction,
                  "max_inflight": inflight, "recompute": recompute, "overlap": overlap, "iterations": 2,
                  "mended": mode in MENDED, **({"checkpoints": checkpoints} if full else {})}


# ---- reading plans ---------------------------------------------------------------------------------------------------

WORK = ("compute", "a2a")  # streams that the manager finds in use
Read = collections.namedtuple("Read", "passes events tensors")


def read(text):
    """The passes in order (a pass comes back where another overlaps it), the events as the manager's log has them, and by
    chunk and commit the bytes of what leaves. Kernels of layers in backward are work."""
    passes, events, tensors, host_bytes, host, recorded = [], [], {}, {}, {}, {}
    since_record, current = collections.defaultdict(list), None
    for line in text.splitlines():
        mark = re.match(r"(forward|backward|finish|optimizer|setup)(?: m(\d+) c(\d+))?$", line)
        words = line.split()
        if mark:
            current = (mark[1][0].upper(), int(mark[2]), int(mark[3])) if mark[2] else None
            passes += [current] if current else []
        elif current is None or not words:
            continue
        elif words[0] == "kernel" and current[0] == "B" and " @ layer " in line:
            events.append(["work"])
        elif words[0] == "host_alloc":
            host_bytes[words[2]] = int(re.search(r" (\d+) bytes", line)[1])
        elif words[:2] == ["wait", "d2h"]:
            events.append(["join", "d2h", recorded[words[2]][0]])
            tensors.setdefault(current[1:], []).append([])
        elif words[0] == "d2h":
            groups = tensors[current[1:]]
            group = groups[-1]
            host[words[4]] = [*current[1:], len(groups) - 1, len(group)]
            group.append(host_bytes[words[4]])
            events.append(["d2h", host[words[4]]])
            since_record[words[1]].append(host[words[4]])
        elif words[0] == "h2d":
            events.append(["h2d", words[1], host[words[2]]])
            since_record[words[1]].append(host[words[2]])
        elif words[0] == "record":
            recorded[words[2]] = (words[1], since_record.pop(words[1], []))
        elif words[0] == "wait":
            on, copies = recorded[words[2]]
            if words[1] == "h2d" and on in WORK:
                events.append(["join", "h2d", on])
            elif words[1] == "h2d" and on == "d2h" or words[1] in WORK and on in ("d2h", "h2d"):
                events.append(["wait", words[1], on, copies])
    return Read(passes, events, tensors)


def order_of(passes):
    """Passes alone, and pairs that take turns."""
    order, seen = [], {}
    for i, current in enumerate(passes):
        if current not in seen:
            order.append([current])
        elif passes[i - 1] != current:  # came back: it overlaps the pass before
            pair = order[seen[passes[i - 1]]] if seen[passes[i - 1]] != seen[current] else []
            if pair:
                order[seen[current]] += pair
                pair.clear()
                seen[passes[i - 1]] = seen[current]
            continue
        else:
            continue
        seen[current] = len(order) - 1
    return [group for group in order if group]


def comparable(events, has_work):
    """Without what orders nothing: waits for events after no copy, of which compilation leaves some out, repeated waits, and
    work after work. Tensors of a group that are fetched at their use come in the order of their use."""
    kept, seen = [], []
    for event in events:
        if event[0] == "work" and (not has_work or kept[-1:] == [event]):
            continue
        if event[0] != "wait":
            kept.append(event)
        elif event[3] and event not in seen:
            kept.append(event)
            seen.append(event)
    start = 0
    while start < len(kept):
        end = start
        while end < len(kept) and kept[end][:2] == ["h2d", "compute"] and kept[end][2][:3] == kept[start][-1][:3]:
            end += 1
        kept[start:end] = sorted(kept[start:end])
        start = max(end, start + 1)
    return kept


# ---- comparing -------------------------------------------------------------------------------------------------------

def jobs_of(offsim, mode):
    """(keys, job, warm-up, steady plan or None and its message) of SETTINGS drawn settings that offsim takes."""
    r = random.Random(f"manager {mode}")
    found = []
    while len(found) < SETTINGS:
        keys, job = draw_inputs(r) if mode == INPUTS else draw(r, mode)
        options = [*sets(*keys), "--rank", str(job["pp_rank"]), BASE]
        warmup = offsim("plan", "--iteration", "warmup", *options)
        if "has emptied the input" in warmup.stderr:  # the stub's tensors have no contents
            continue
        recomputed = "to a later forward" in warmup.stderr
        if warmup.status != 0 and "tensor_pop" not in warmup.stderr and not recomputed:
            continue
        steady = offsim("plan", "--iteration", "steady", *options)
        if "not modelled" in warmup.stderr + steady.stderr:
            continue
        if steady.status != 0 and f"pipeline rank {job['pp_rank']}:" not in steady.stderr + warmup.stderr:
            continue  # another rank stops
        structure = warmup
        if warmup.status != 0:  # stopped: the same groups leave
            structure = offsim("plan", "--iteration", "warmup", *options, "--set", "mode=fixed", check=0)
        plan = read(structure.stdout)
        job["order"] = order_of(plan.passes)
        job["tensors"] = [[[1]] * MOST_COMMITS if recomputed else plan.tensors.get((0, c), [])
                          for c in range(job["virtual_stages"])]
        found.append((keys, job, warmup, steady))
    return found


def difference(keys, job, warmup, steady, logs):
    """What differs, or None."""
    for run, log in zip((warmup, steady), logs):
        stopped = bool(log) and log[-1][0] == "stop"
        if stopped != (run.status != 0):
            return f"{keys}: the manager says {log[-1:]}, offsim {run.stderr.strip()[-300:] or 'nothing'}"
        if stopped:
            return None
        mine, its = (comparable(events, ["work"] in log) for events in (read(run.stdout).events, log))
        if mine != its:
            at = next((i for i, (a, b) in enumerate(zip(mine, its)) if a != b), min(len(mine), len(its)))
            return f"{keys}, rank {job['pp_rank']}, event {at}: {mine[at - 2:at + 6]}, the manager {its[at - 2:at + 6]}"
    return None


@pytest.mark.parametrize("mode", ["as_released", *MENDED, *VERSIONS, INPUTS])
def test_same_copies_and_waits(offsim, mode):
    given = GIVEN.get("as_released" if mode in MENDED else mode)
    if given is None:
        pytest.skip(f"OFFSIM_MEGATRON_MANAGER names no copy of Megatron-LM's manager for {mode}")
    drawn = jobs_of(offsim, mode)
    command = [sys.executable, ROOT / "tests/peers/megatron_manager.py", given, *([mode] if mode in MENDED else [])]
    done = subprocess.run(command, text=True, input=json.dumps([job for _, job, _, _ in drawn]), capture_output=True,
                          check=True)
    different = [found for row, logs in zip(drawn, json.loads(done.stdout)) if (found := difference(*row, logs))]
    assert not different, f"{len(different)} of {SETTINGS}:\n" + "\n".join(different[:5])
    assert any("recompute" in key for keys, *_ in drawn for key in keys)
    assert mode == INPUTS or any(len(passes) > 1 for _, job, _, _ in drawn for passes in job["order"])
