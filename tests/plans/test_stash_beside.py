"""The paged stash beside fine-grained offloading: each engine issues what it issues alone, in its own order."""

import json
import re

import pytest

from conftest import sets

SCENARIO = "docs/examples/paged-stash.yaml"
MODULES = ["fine_grained_activation_offloading=true", "offload_modules=qkv_linear,core_attn,attn_proj,mlp_norm",
           "offload.mode=fixed", "nvte_cpu_offload_v1=true"]
SCHEDULES = {"1f1b": [], "interleaved": ["num_layers=8", "num_layers_per_virtual_pipeline_stage=2"],
             "limited": ["fine_grained_offloading_max_inflight_offloads=1"]}
MARK = re.compile(r"^(forward|backward|setup|finish|optimizer|rank)\b.*")
COPY = re.compile(r"^  (d2h|h2d) +\w+ +(%\d+).* @ (.*)$")
PACKED = re.compile(r"^  kernel +pack +copy .* @ (.*)$")


def moved(text, of_stash):
    """Marks, and what the engine copies between them, with the place of each copy."""
    out = []
    for line in text.splitlines():
        mark, found = MARK.match(line), (PACKED if of_stash else COPY).match(line)
        if mark:
            out.append(mark[0])
        elif found:
            out.append((found[1], found[found.lastindex]))
    return out


def without_limit(words):
    return [word for word in words if not word.startswith("fine_grained_offloading_max")]


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("iteration", ["warmup", "steady"])
def test_each_engine_does_what_it_does_alone(offsim, iteration, schedule):
    def plan(*words):
        return offsim("plan", "--iteration", iteration, SCENARIO, *sets(*words)).stdout
    both = plan(*MODULES, *schedule)
    stash, modules = plan(*without_limit(schedule)), plan(*MODULES, *schedule, "moe_paged_stash=false")
    assert moved(both, True) == moved(stash, True)
    assert moved(both, False) == moved(modules, False)
    for of_stash in (True, False):
        happens = any(isinstance(event, tuple) for event in moved(both, of_stash))
        assert happens or (of_stash and iteration == "warmup"), "nothing is compared"


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_theory_is_the_sum(offsim, schedule):
    def savings(*words):
        prediction = json.loads(offsim("predict", "--json", SCENARIO, *sets(*words)).stdout)
        return [rank["theoretical_saving_bytes"] for rank in prediction["result"]["ranks"]]
    modules, stash = savings(*MODULES, *schedule, "moe_paged_stash=false"), savings(*without_limit(schedule))
    assert savings(*MODULES, *schedule) == [sum(pair) for pair in zip(modules, stash)]
    assert min(modules + stash) > 0
