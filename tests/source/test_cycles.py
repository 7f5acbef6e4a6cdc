"""Who calls whom, from the symbols of the objects that the build made: no cycle between the files of one library,
and none between folders. Data that points to a function counts as a call of it.
"""

import collections
import functools
import graphlib
import json
import pathlib
import subprocess

import pytest

from conftest import ROOT

BUILD = ROOT / "out" / "release"

# Without these calls there is no cycle: (caller, what it calls): why.
KNOWN_FILES = {
    ("cuda/device/cuda_driver.c", "cuda/device/cuda_memory.c"): "the driver's table names them; they say what CUDA said",
    ("cuda/device/cuda_driver.c", "cuda/device/cuda_order.c"): "the driver's table names them; they say what CUDA said",
    ("ref/exec/buffers.c", "ref/exec/exec.c"): "reports a wrong plan",
    ("ref/exec/streams.c", "ref/exec/exec.c"): "reports a wrong plan",
    ("ref/exec/streams.c", "ref/exec/work.c"): "a stream runs its next op",
    ("ref/exec/opaque.c", "ref/exec/work.c"): "a call that ends outside completes its op",
    ("sim/compile/actions.c", "sim/compile/walk.c"): "actions allocate and free as the walk does; the walk waits by actions",
    ("sim/compile/fsdp.c", "sim/compile/parameters.c"): "FSDP asks for the parameters of the model that it shards",
    ("sim/compile/parameters.c", "sim/compile/weights.c"): "weights may lie on the host, where parameters put them",
    ("sim/compile/deferred.c", "sim/compile/walk_program.c"): "a deferred step is issued as the walk would have",
    ("sim/compile/emit.c", "sim/compile/parts.c"): "a kernel may be delayed until the sizes of its parts are known",
    ("sim/compile/lower_gradients.c", "sim/compile/parts.c"): "a gradient may be a part of another",
    ("sim/compile/lower_backward.c", "sim/compile/lower_regions.c"): "backward of a recomputed region runs its forward again",
    ("sim/compile/lower_forward.c", "sim/compile/lower_regions.c"): "forward saves the inputs of a recomputed region",
    ("sim/shell/arithmetic.c", "sim/shell/variables.c"): "an integer variable takes the value of an expression",
    ("sim/shell/builtins.c", "sim/shell/evaluate.c"): "eval runs a text as commands",
    ("sim/shell/files.c", "sim/shell/evaluate.c"): "a sourced file is run as commands",
    ("sim/shell/launch.c", "sim/shell/evaluate.c"): "bash -c runs a text as commands",
    ("sim/shell/expand.c", "sim/shell/evaluate.c"): "a command substitution runs commands",
    ("sim/shell/expand.c", "sim/shell/parameter.c"): "a word has parameters, whose defaults are words",
    ("sim/plan/parse.c", "sim/plan/parse_ops.c"): "the reader calls the readers of lines, which look into its tables",
    ("sim/plan/parse_calls.c", "sim/plan/parse.c"): "the reader calls the readers of lines, which look into its tables",
    ("sim/model/hf/linears.c", "sim/model/hf/lora.c"): "a linear layer may have an adapter, which is made of linear layers",
    ("sim/model/hf/lora.c", "sim/model/hf/lora_kernels.c"): "adapters may be fused",
    ("sim/model/megatron/attention.c", "sim/model/megatron/attention_mla.c"): "MLA is one of its kinds, with the same core",
    ("sim/model/megatron/dispatcher.c", "sim/model/megatron/dispatcher_allgather.c"): "chooses a dispatcher",
    ("sim/model/megatron/dispatcher.c", "sim/model/megatron/dispatcher_alltoall.c"): "chooses a dispatcher",
    ("sim/model/megatron/dispatcher.c", "sim/model/megatron/dispatcher_flex.c"): "chooses a dispatcher",
}
KNOWN_FOLDERS = {
    ("sim/operators", "sim/compile"): "operators emit through sim/graph/emitter.h, which sim/compile implements",
    ("sim/model/hf", "sim/compile"): "operators emit through sim/graph/emitter.h, which sim/compile implements",
    ("sim/offload", "sim/compile"): "policies act through sim/offload/actions.h, which sim/compile implements",
}


def objects():
    """Object -> source, of what the build knows: an object of a removed source is left in out/."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "compdb"], text=True, capture_output=True, check=True)
    for row in json.loads(done.stdout):
        if row["output"].endswith(".o") and (BUILD / row["output"]).exists():
            kernels = [word for word in row["command"].split() if word.endswith(".cu")]  # after a compiler's own file
            source = (BUILD / (kernels or [row["file"]])[0]).resolve().relative_to(ROOT)
            joined = kernels and source.parts[0] == "out"  # several kernels in one object: `calls` looks at host_kernels
            if source.parts[0] != "tests" and not joined:
                yield row["output"], str(source)


@functools.cache
def calls():
    """Caller -> what it calls -> the symbols; files are named from the root."""
    source_of = dict(objects())
    assert source_of, f"{BUILD} is not built"
    listed = subprocess.run(["nm", "-A", *source_of], cwd=BUILD, text=True, capture_output=True, check=True)
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    for line in listed.stdout.splitlines():
        name, _, rest = line.partition(":")
        *_, kind, symbol = rest.replace("cuda_exact_", "host_exact_").split()  # one source
        if kind in "TDRBC":
            defined[symbol].add(source_of[name])
        elif kind == "U":
            used[symbol].add(source_of[name])
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for symbol, callers in used.items():
        for caller in callers:
            for callee in defined[symbol] - {caller}:
                found[caller][callee].add(symbol)
    return found


@functools.cache
def library(path):
    """The folder of the BUILD.gn that lists the file."""
    folder = pathlib.PurePath(path).parent
    while not (ROOT / folder / "BUILD.gn").exists():
        folder = folder.parent
    return str(folder)


def calls_in_libraries():
    return {caller: {callee: symbols for callee, symbols in of.items() if library(callee) == library(caller)}
            for caller, of in calls().items()}


def calls_of_folders():
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for caller, of in calls().items():
        for callee, symbols in of.items():
            one, other = (str(pathlib.PurePath(path).parent) for path in (caller, callee))
            if one != other:
                found[one][other] |= symbols
    return found


GRAPHS = {"files": (calls_in_libraries, KNOWN_FILES), "folders": (calls_of_folders, KNOWN_FOLDERS)}


def cycles(graph):
    """Cycles until none is left, the last call of each taken away; the order is the same in every run."""
    left = {caller: sorted(of) for caller, of in sorted(graph.items())}
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
            return
        except graphlib.CycleError as error:
            cycle = error.args[1][::-1]  # as callers, each of the next
            yield cycle
            left[cycle[-2]].remove(cycle[-1])


def reaches(graph, start, end):
    seen, left = set(), [start]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += graph.get(node, ())
    return end in seen


@pytest.mark.parametrize("graph", GRAPHS)
def test_nothing_calls_in_a_cycle(graph):
    of, known = GRAPHS[graph][0](), GRAPHS[graph][1]
    allowed = {caller: {callee for callee in called if (caller, callee) not in known} for caller, called in of.items()}
    found = []
    for cycle in cycles(allowed):
        steps = [f"  {one} calls {min(of[one][other])} of {other}" for one, other in zip(cycle, cycle[1:])]
        found.append("\n".join(["a cycle:", *steps]))
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("graph", GRAPHS)
def test_known_cycles_exist(graph):
    """What is no longer called, or no longer calls back, leaves the table. Some files are built with CUDA alone."""
    of, known = GRAPHS[graph][0](), GRAPHS[graph][1]
    gone = [f"{caller} -> {callee}: no cycle any more; take it out of the table" for caller, callee in known
            if (caller in of or not (ROOT / caller).exists())
            and (callee not in of.get(caller, ()) or not reaches(of, callee, caller))]
    if gone:
        pytest.fail("\n".join(gone), pytrace=False)
