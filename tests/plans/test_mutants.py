"""Every edge of many small plans is taken away in turn: the verifier and an independent oracle
(tests/plans/oracle.py) must say the same of each mutant.

  unsafe      two ops touch the same memory in no certain order
  redundant   the edge says nothing that is not known by then anyway
  harmless    neither: the edge only throttles
"""

import json
import os
import re
import subprocess

import oracle
from conftest import ROOT

PAGE = ROOT / "docs/reference/verifier.md"  # says how many
BOTH, FIRST, LATER = ("warmup", "steady"), ("warmup",), ("steady",)
LAYER = "docs/examples/one-layer.yaml"
TE = ["fine_grained_activation_offloading=false", "offload.offload_modules=", "num_layers=3"]
NEW_TE = ["software.container=pytorch:26.04-py3"]
MOE = ["num_experts=2", "moe_ffn_hidden_size=1024", "moe_router_topk=2", "moe_grouped_gemm=true"]
EXCHANGE = MOE + ["moe_token_dispatcher_type=alltoall", "expert_model_parallel_size=2", "world_size=2"]
GRAPHS = ["cuda_graph_impl=transformer_engine", "cuda_graph_modules=attn"]
HF, CHECKPOINTS = "docs/examples/hf-layers.yaml", "docs/examples/hf-checkpoints.yaml"


def stages(layers, microbatches, count, *more):
    return [f"num_layers={layers}", f"global_batch_size={microbatches}",
            f"pipeline_model_parallel_size={count}", f"world_size={count}", *more]


# A system, what is run, what it is changed in, and which iterations. All of them are small.
CORPUS = [
    ("none", LAYER, stages(2, 3, 2, "fine_grained_activation_offloading=false"), LATER),
    ("megatron", LAYER, stages(1, 1, 1), BOTH),
    ("megatron", LAYER, stages(2, 2, 1), BOTH),
    ("megatron", LAYER, stages(2, 2, 2), BOTH),
    ("megatron", LAYER, stages(2, 1, 1, "offload.offload_modules=core_attn attn_proj"), BOTH),
    ("megatron", LAYER, stages(2, 2, 1, "fine_grained_offloading_max_inflight_offloads=1"), LATER),
    ("megatron", LAYER, stages(3, 1, 1, "activation_offload_fraction=0.5"), LATER),
    ("megatron", LAYER, stages(4, 2, 2, "num_virtual_stages_per_pipeline_rank=2"), LATER),
    ("megatron", "tests/known_bugs/megatron-late-reload.yaml", ["mode=fixed"], BOTH),
    ("megatron", "tests/known_bugs/megatron-late-reload.yaml", ["mode=pr7575"], FIRST),
    ("megatron", LAYER, EXCHANGE + ["overlap_moe_expert_parallel_comm=true", "global_batch_size=4",
                                    "offload.offload_modules=moe_act"], LATER),
    ("megatron", LAYER, GRAPHS + stages(2, 2, 1), LATER),
    ("megatron_pr1752", "tests/known_bugs/megatron-pr1752-last-group.yaml", ["mode=fixed"], LATER),
    ("paged_stash", "docs/examples/paged-stash.yaml", ["num_layers=2", "pipeline_model_parallel_size=1", "world_size=4",
                                                       "global_batch_size=4"], BOTH),
    ("te_v1", LAYER, TE + ["cpu_offloading_num_layers=2"], BOTH),
    ("te_v1", LAYER, TE + NEW_TE + ["cpu_offloading_num_layers=2", "cpu_offloading_double_buffering=true"], BOTH),
    ("te_v2", LAYER, TE + NEW_TE + ["cpu_offloading_num_layers=1"], BOTH),
    ("te_v2", LAYER, TE + NEW_TE + ["cpu_offloading_manual_synchronization=true", "cpu_offloading_layers=0"], LATER),
    ("none", HF, ["num_layers=1"], LATER),
    ("trl", HF, ["num_layers=1"], BOTH),
    ("trl", CHECKPOINTS, ["num_layers=2"], LATER),
    ("trl_sync", HF, ["num_layers=1"], LATER),
    ("save_on_cpu", HF, ["num_layers=1"], BOTH),
    ("planned", HF, ["num_layers=2"], LATER),
    ("planned", LAYER, stages(2, 2, 2, "system=planned", "planned_device_bytes=1"), LATER),
    ("hidden_states", CHECKPOINTS, ["num_layers=3"], BOTH),
    ("hidden_states_reentrant", CHECKPOINTS, ["num_layers=3"], BOTH),
    ("selective_checkpointing", CHECKPOINTS, ["num_layers=3"], BOTH),
    ("transformers", CHECKPOINTS, ["num_layers=3", "every_n_layers=2"], BOTH),
    ("deepspeed", CHECKPOINTS, ["num_layers=4"], LATER),
    ("axolotl_disk", CHECKPOINTS, ["num_layers=3"], BOTH),
    ("veomni", HF, ["num_layers=1", "fsdp=fsdp2", "keep_gradients=false"], LATER),
    ("verl", HF, ["num_layers=3", "fsdp=fsdp2", "keep_gradients=false"], LATER),
    ("hidden_states", "tests/known_bugs/axolotl-layer-offloading.yaml", ["mode=fixed", "layer_offloading=true"], LATER),
    ("layer_offloading", "tests/known_bugs/axolotl-layer-offloading.yaml", ["mode=fixed", "lora_target_modules=q_proj"],
     BOTH),
]


def compiled(offsim):
    """(name, plan as text) of the corpus."""
    for system, scenario, keys, iterations in CORPUS:
        options = [option for key in ["offload.mode=fixed", f"offload.system={system}", *keys] for option in ("--set", key)]
        for iteration in iterations:
            yield (f"{system}, {scenario} {' '.join(keys)}, {iteration}",
                   offsim("plan", "--iteration", iteration, *options, scenario, check=0).stdout)


def plans(offsim):
    yield from compiled(offsim)
    for path in sorted(ROOT.glob("tests/known_bugs/*.plan")):
        yield path.name, path.read_text()


def findings(offsim, text):
    done = offsim("check", "--plan", "-", "--json", stdin=text)
    assert done.status in (0, 1), done.stderr
    return json.loads(done.stdout)


def are_safe(texts):
    done = subprocess.run(ROOT / "out/release/safe_plans", input="".join(text + "\0" for text in texts), text=True,
                          capture_output=True, check=True)
    found = done.stdout.split()
    assert len(found) == len(texts)
    return [safe == "safe" for safe in found]


def mutants(lines):
    """(line, stream or None, the text without one edge): a wait, or a stream that a free names."""
    for number, line in enumerate(lines):
        if re.match(r"  (wait|host_wait|host_read) ", line):
            yield number, None, lines[:number] + lines[number + 1:]
        elif re.match(r"  free .* after", line):
            head, marks = line.split(" after ")
            for mark in marks.split():
                left = [m for m in marks.split() if m != mark]
                yield number, mark, lines[:number] + [head + (" after " + " ".join(left) if left else "")] \
                    + lines[number + 1:]


def op_numbers(lines):
    """(rank, op) of each line: phases count as ops, residents do not."""
    numbers, rank, op = {}, None, 0
    for number, line in enumerate(lines):
        if line.startswith("rank "):
            rank, op = int(line.split()[1]), 0
        elif rank is not None and line.strip() and not line.startswith("  resident"):
            numbers[number] = (rank, op)
            op += 1
    return numbers


def advised(found, kind):
    return {(finding["ranks"][0], finding["ops"][-1]["op"]) for finding in found["findings"]
            if finding["kind"] == kind}


def without(steps, number, mark):
    return steps.without_wait(number) if mark is None else steps.without_mark(number, mark)


def test_a_plan_without_an_edge_is_what_its_text_says(root):
    for path in sorted(root.glob("tests/known_bugs/*.plan")):
        text = path.read_text()
        steps = oracle.Steps(oracle.read(text))
        for number, mark, mutant in mutants(text.splitlines()):
            assert bool(without(steps, number, mark).conflicts()) == bool(oracle.conflicts(oracle.read("\n".join(mutant))))


def disagreements(offsim, name, text, counts):
    lines, ranks = text.splitlines(), oracle.read(text)
    found, useless, ops = findings(offsim, text), oracle.useless_edges(ranks), op_numbers(lines)
    steps = oracle.Steps(ranks)
    waits, marks = advised(found, "redundant_wait"), advised(found, "useless_record_stream")
    assert found["safe"] == (steps.conflicts() == []), name
    made = list(mutants(lines))
    are_found_safe = are_safe(["\n".join(mutant) + "\n" for _, _, mutant in made])
    for (number, mark, _), is_found_safe in zip(made, are_found_safe):
        if without(steps, number, mark).conflicts():
            kind = "unsafe"
        else:
            is_useless = (number if mark is None else (number, mark)) in useless
            kind = "redundant" if is_useless else "harmless"
        counts[kind] += 1
        if not is_found_safe:
            said = "unsafe"
        else:
            said = "redundant" if ops[number] in (waits if mark is None else marks) else "harmless"
        if said != kind:
            yield f"{name}: line {number + 1}, {lines[number].strip()}: {kind}; found {said}"


def test_mutants(offsim):
    counts = {"unsafe": 0, "redundant": 0, "harmless": 0}
    wrong, plan_count = [], 0
    for name, text in plans(offsim):
        plan_count += 1
        wrong += disagreements(offsim, name, text, counts)
    assert not wrong, "\n".join(wrong[:20])
    told = f"{plan_count} plans, {sum(counts.values())} mutants: " + \
        ", ".join(f"{count} {kind}" for kind, count in counts.items())
    found = re.search(r"\d+ plans, \d+ mutants: [^\n]*", PAGE.read_text())
    if os.environ.get("BLESS"):
        PAGE.write_text(PAGE.read_text().replace(found[0], told))
    assert os.environ.get("BLESS") or found[0] == told, f"{PAGE.name}: {told}"


def test_the_corpus_has_every_system():
    table = (ROOT / "sim/config/offload_systems.h").read_text()
    assert {row[0] for row in CORPUS} == set(re.findall(r"^  X\((\w+),", table, re.M))


def test_fixed_plans_are_safe(offsim):
    """What `check` finds in both iterations, the second with the first one's pools."""
    for system, scenario, keys, _ in CORPUS:
        options = [option for key in ["offload.mode=fixed", f"offload.system={system}", *keys] for option in ("--set", key)]
        offsim("check", *options, scenario, check=0)
