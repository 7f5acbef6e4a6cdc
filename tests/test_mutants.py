"""Every edge of many small plans is taken away in turn: the verifier and an independent oracle
(tests/oracle.py) must say the same of each mutant.

  unsafe      two ops touch the same memory in no certain order
  redundant   the edge says nothing that is not known by then anyway
  harmless    neither: the edge only throttles
"""

import itertools
import json
import re

import oracle

SMALL = "docs/examples/one-layer.yaml"

# Layers, micro-batches, stages.
SHAPES = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 3, 2)]
SYSTEMS = {
    "none": ["offload.fine_grained_activation_offloading=false"],
    "core_attn": [],
    "two modules": ["offload.offload_modules=core_attn attn_proj"],
    "throttled": ["offload.fine_grained_offloading_max_inflight_offloads=1"],
    "fraction": ["offload.activation_offload_fraction=0.5"],
}
LAYERS = {
    "te_v1": ["offload.system=te_v1", "offload.cpu_offloading_num_layers=2"],
    "te_v1 double buffer": ["offload.system=te_v1", "offload.cpu_offloading_num_layers=2",
                            "offload.cpu_offloading_double_buffering=true",
                            "software.container=pytorch:26.04-py3"],
    "te_v2": ["offload.system=te_v2", "offload.cpu_offloading_num_layers=1",
              "software.container=pytorch:26.04-py3"],
}


def settings():
    for (name, keys), (layers, microbatches, stages) in itertools.product(SYSTEMS.items(), SHAPES):
        yield f"{name}, {layers} layers x {microbatches} on {stages}", keys + [
            f"num_layers={layers}", f"global_batch_size={microbatches}",
            f"pipeline_model_parallel_size={stages}", f"world_size={stages}"]
    for name, keys in LAYERS.items():
        yield name, ["offload.fine_grained_activation_offloading=false", "num_layers=3",
                     "offload.offload_modules="] + keys


def plans(offsim):
    for name, keys in settings():
        options = [option for key in keys for option in ("--set", key)]
        for iteration in ("warmup", "steady"):
            yield f"{name}, {iteration}", offsim("plan", "--iteration", iteration, *options, SMALL,
                                                 check=0).stdout


def findings(offsim, text):
    done = offsim("check", "--plan", "-", "--json", stdin=text)
    assert done.status in (0, 1), done.stderr
    return json.loads(done.stdout)


def mutants(lines):
    """(line, stream or None, the text without one edge): a wait, or a stream that a free names."""
    for number, line in enumerate(lines):
        if re.match(r"  (wait|host_wait) ", line):
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


def disagreements(offsim, name, text, counts):
    lines, ranks = text.splitlines(), oracle.read(text)
    found, useless, ops = findings(offsim, text), oracle.useless_edges(ranks), op_numbers(lines)
    waits, marks = advised(found, "redundant_wait"), advised(found, "useless_record_stream")
    assert found["safe"] == (oracle.conflicts(ranks) == []), name
    for number, mark, mutant in mutants(lines):
        if oracle.conflicts(oracle.read("\n".join(mutant))):
            kind = "unsafe"
        else:
            is_useless = (number if mark is None else (number, mark)) in useless
            kind = "redundant" if is_useless else "harmless"
        counts[kind] += 1
        if not findings(offsim, "\n".join(mutant) + "\n")["safe"]:
            said = "unsafe"
        else:
            said = "redundant" if ops[number] in (waits if mark is None else marks) else "harmless"
        if said != kind:
            yield f"{name}: line {number + 1}, {lines[number].strip()}: {kind}; found {said}"


def test_mutants(offsim, capsys):
    counts = {"unsafe": 0, "redundant": 0, "harmless": 0}
    wrong, plan_count = [], 0
    for name, text in plans(offsim):
        plan_count += 1
        wrong += disagreements(offsim, name, text, counts)
    with capsys.disabled():
        print(f"\n{plan_count} plans, mutants: {counts}")
    assert not wrong, "\n".join(wrong[:20])
