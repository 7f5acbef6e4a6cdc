"""The same input gives the same bytes, whichever compiler made the program."""

import hashlib

import pytest

from conftest import sets

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
    options = sets(*overrides)
    run = offsim("predict", SCENARIO, *options, "--json", "--trace", trace, check=0)
    return [hashlib.sha256(text).hexdigest() for text in (run.stdout.encode(), trace.read_bytes())]


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS)
def test_same_bytes_everywhere(overrides, offsim_everywhere, tmp_path):
    prints = {name: fingerprint(offsim, overrides, tmp_path)
              for name, offsim in offsim_everywhere.items()}
    assert len(prints) > 1
    first = next(iter(prints.values()))
    assert all(found == first for found in prints.values()), prints
