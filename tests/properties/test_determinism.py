"""The same input gives the same bytes, whichever compiler made the program."""

import hashlib
import subprocess

import pytest

from conftest import ROOT, sets

SCENARIO = "tests/data/small.yaml"
EXPERTS = ["model.num_experts=8", "model.moe_grouped_gemm=true", "parallel.expert_model_parallel_size=4",
           "model.moe_token_dispatcher_type=alltoall"]
VARIANTS = {
    "offloaded": [],
    "baseline": ["offload.fine_grained_activation_offloading=false"],
    "ideal machine": ["machine.name=ideal"],
    "as released": ["offload.mode=as_released"],
    "no pipeline": ["parallel.pipeline_model_parallel_size=1"],
    "interleaved": ["parallel.pipeline_model_parallel_size=4",
                    "parallel.num_virtual_stages_per_pipeline_rank=2"],
    "tensor parallel": ["parallel.tensor_model_parallel_size=2", "parallel.sequence_parallel=true"],
    "experts": EXPERTS,
    "experts on the link": [*EXPERTS, "offload.offload_modules=expert_fc1,moe_act"],
    "half of it": ["offload.activation_offload_fraction=0.5", "machine.name=GB200"],
}


def fingerprint(offsim, overrides, folder):
    trace = folder / "trace.json"
    options = sets("offload.mode=fixed", *overrides)
    run = offsim("predict", SCENARIO, *options, "--json", "--trace", trace, check=0)
    return [hashlib.sha256(text).hexdigest() for text in (run.stdout.encode(), trace.read_bytes())]


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS)
def test_same_bytes_everywhere(overrides, offsim_everywhere, tmp_path):
    prints = {name: fingerprint(offsim, overrides, tmp_path)
              for name, offsim in offsim_everywhere.items()}
    assert len(prints) > 1
    first = next(iter(prints.values()))
    assert all(found == first for found in prints.values()), prints


# Real arithmetic, in bf16, fp32 and with experts.
RUNS = {
    "llama": ["docs/examples/tiny-llama.yaml"],
    "llama in fp32": ["docs/examples/tiny-llama.yaml", *sets("bf16=false", "tensor_model_parallel_size=2", "world_size=2")],
    "plain PyTorch": ["docs/examples/tiny-llama-hf.yaml", *sets("offload.system=trl")],
    "deepseek": ["docs/examples/tiny-deepseek.yaml"],
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_same_arithmetic_everywhere(run, offsim_everywhere):
    found = {(name, threads): offsim("run", "--on", "ref", "--steps", 2, "--threads", threads, "--json", *run, check=0).stdout
             for name, offsim in offsim_everywhere.items() for threads in (1, 2)}
    assert len(set(found.values())) == 1, {key: hashlib.sha256(text.encode()).hexdigest() for key, text in found.items()}


def symbols(*arguments):
    listed = subprocess.run(["nm", *map(str, arguments)], text=True, capture_output=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines() if " " in line}


def test_no_functions_of_the_c_library(offsim_everywhere):
    """Another library's exp has other bits; a root is rounded exactly everywhere."""
    library = subprocess.run(["gcc", "-print-file-name=libm.so.6"], text=True, capture_output=True, check=True)
    inexact = symbols("-D", "--defined-only", library.stdout.strip()) - {"sqrt", "sqrtf"}
    assert {"exp", "expf", "log", "pow", "fma", "tanhf"} <= inexact
    for name in offsim_everywhere:
        archives = list((ROOT / "out" / name / "obj/ref").glob("*/*.a"))
        assert archives
        called = {archive.name: sorted(symbols("-u", archive) & inexact) for archive in archives}
        assert not any(called.values()), (name, called)
