"""Ranks that exchange data on the CPU in place of GPUs: one process with a thread for each, or a process for each under
mpirun, compute what the reference execution computes."""

import json
import shutil
import subprocess

import pytest

from conftest import ROOT, TIMEOUT_S, sets

LLAMA = "docs/examples/tiny-llama.yaml"
DEEPSEEK = "docs/examples/tiny-deepseek.yaml"
EXPERTS = ["num_experts=4", "moe_ffn_hidden_size=32", "moe_router_topk=2", "moe_grouped_gemm=true",
           "moe_router_dtype=fp32", "global_batch_size=4", "expert_model_parallel_size=2", "world_size=2"]
LAYOUTS = {
    "pipeline": (LLAMA, 2, ["world_size=2", "pipeline_model_parallel_size=2"]),
    "overlapped": (LLAMA, 2, ["world_size=2", "pipeline_model_parallel_size=2", "num_layers=8", "overlap_p2p_comm=true",
                              "num_virtual_stages_per_pipeline_rank=2", "global_batch_size=4"]),
    "sequence": (LLAMA, 4, ["world_size=4", "tensor_model_parallel_size=2", "sequence_parallel=true",
                            "context_parallel_size=2"]),
    "user buffers": (LLAMA, 2, ["world_size=2", "tensor_model_parallel_size=2", "sequence_parallel=true",
                                "tp_comm_overlap=true"]),
    "user buffers, rings": (LLAMA, 4, ["world_size=4", "tensor_model_parallel_size=4", "sequence_parallel=true",
                                       "num_query_groups=4", "tp_comm_overlap=true", "tp_comm_overlap_rs_method=ring_exchange"]),
    "alltoall": (LLAMA, 2, [*EXPERTS, "moe_token_dispatcher_type=alltoall"]),
    "deepep": (LLAMA, 2, [*EXPERTS, "moe_token_dispatcher_type=flex", "moe_flex_dispatcher_backend=deepep"]),
    "deepep, one expert a token": (LLAMA, 2, [*EXPERTS, "moe_token_dispatcher_type=flex", "moe_router_topk=1",
                                              "moe_router_pre_softmax=true", "moe_flex_dispatcher_backend=deepep"]),
    "all of them": (DEEPSEEK, 4, []),
}
CUDA = ["--on", "cuda", "--gpus", 0, "--arithmetic", "exact"]
KEYS = ["loss_bits", "loss_fingerprint", "grads_fingerprint", "params_fingerprint"]


@pytest.fixture(scope="module")
def offsim(offsim_with_and_without_cuda):
    return offsim_with_and_without_cuda


def outcome(text):
    run = json.loads(text)
    return [[step[key] for key in KEYS] for step in run["steps"]], run["left_out_choices"]


def words(name, *executor):
    scenario, _, settings = LAYOUTS[name]
    return ["run", *executor, "--steps", 2, "--json", *sets(*settings), scenario]


@pytest.fixture(scope="module")
def expected(offsim):
    return {name: outcome(offsim(*words(name, "--on", "ref"), check=0).stdout) for name in LAYOUTS}


@pytest.mark.parametrize("name", LAYOUTS)
def test_threads(offsim, expected, name):
    assert outcome(offsim(*words(name, *CUDA), check=0).stdout) == expected[name]


def under_mpirun(offsim, processes, arguments):
    launcher = shutil.which("mpirun")
    if launcher is None:
        pytest.skip("no mpirun")
    command = [launcher, "--allow-run-as-root", "--oversubscribe", "-n", processes, offsim.path, *arguments]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, text=True, capture_output=True, timeout=TIMEOUT_S)
    if "built without MPI" in done.stderr:
        assert done.returncode == 3
        pytest.skip("offsim is built without MPI")
    return done


@pytest.mark.parametrize("name", LAYOUTS)
def test_processes(offsim, expected, name):
    done = under_mpirun(offsim, LAYOUTS[name][1], words(name, *CUDA))
    assert done.returncode == 0, done.stderr
    assert outcome(done.stdout) == expected[name]


def test_a_process_that_refuses_ends_all(offsim):
    done = under_mpirun(offsim, 2, words("all of them", *CUDA))
    assert done.returncode == 3 and "each process has one rank: there are 2 for 4 ranks" in done.stderr
