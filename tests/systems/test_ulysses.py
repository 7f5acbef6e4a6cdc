"""Ulysses sequence parallelism (verl): what is exchanged, what is divided, and what is refused."""

import json
import re

import pytest

from conftest import sets

ACTOR = "actor_rollout_ref.actor."
TEXT = (ACTOR + "ppo_micro_batch_size_per_gpu=1\n" + ACTOR + "ppo_mini_batch_size=8\n"
        "data.max_prompt_length=1024\ndata.max_response_length=7168\n"
        "actor_rollout_ref.model.enable_gradient_checkpointing=False\n")
LENGTH, HEADS, KEY_HEADS, WIDTH, LAYERS = 8192, 28, 4, 128, 2
SMALL = ["--hf-config", "tests/data/hf/qwen2.5-7b.json", "--set", "model.num_layers=2"]


@pytest.fixture
def run(offsim, tmp_path):
    def run(verb, text, *arguments, check=0):
        path = tmp_path / "run.sh"
        path.write_text(TEXT + text)
        return offsim(verb, "--verl", path, *SMALL, *arguments, check=check)
    return run


def ulysses(size):
    return f"{ACTOR}ulysses_sequence_parallel_size={size}\n"


def exchanges(plan):
    """Bytes that each rank gives to an all-to-all, in program order."""
    steady = plan.split("plan ")[-1] if "plan " in plan else plan
    return [int(b) for b in re.findall(r"collective compute +all_to_all cp of \d+ stride 1 (\d+) bytes", steady)]


@pytest.mark.parametrize("size, key_heads", [(2, 4), (4, 4), (28, 28)])
def test_each_rank_exchanges_its_part(run, size, key_heads):
    """Query, keys and values before attention, its result after; the same for their gradients. Fewer key heads than
    ranks are repeated, and verl pads the sequence to a multiple of the ranks."""
    plan = run("plan", ulysses(size) + "trainer.n_gpus_per_node=28\n" + ACTOR + "ppo_mini_batch_size=28\n").stdout
    row = -(-LENGTH // size) * WIDTH * 2
    one = [HEADS * row, key_heads * row, key_heads * row, HEADS * row]
    found = exchanges(plan)
    assert found[:4 * LAYERS] == one * LAYERS
    assert len(found) % (2 * 4 * LAYERS) == 0 and sorted(found) == sorted(one * (len(found) // 4))


def test_heads_must_be_divisible(run):
    done = run("plan", ulysses(7) + "trainer.n_gpus_per_node=7\n", check=2)
    assert "28 heads of queries and 4 of keys are split over 7 ranks" in done.stderr


def peak(offsim_run):
    return json.loads(offsim_run.stdout)["result"]["ranks"][0]


def test_activations_are_divided(run):
    """With every saved tensor on 1/n of the tokens, what a step adds to static memory is that of 1/n of a sequence,
    apart from gathered parameters, which stay whole."""
    one = peak(run("predict", "", "--json"))
    four = peak(run("predict", ulysses(4), "--json"))
    quarter = peak(run("predict", "", "--json", "--set", "seq_length=2048", "--set", "global_batch_size=32"))
    grown = [p["steady_allocated_peak_bytes"] - p["static_bytes"] for p in (one, four, quarter)]
    assert grown[2] <= grown[1] < grown[0]
    assert grown[1] == pytest.approx(grown[2], rel=0.02)
    assert four["static_bytes"] == pytest.approx(one["static_bytes"], rel=2e-3)


def test_plans_are_safe(run):
    assert "safe; 0 errors" in run("check", ulysses(4)).stdout


def test_one_rank_changes_nothing(run):
    assert run("plan", ulysses(1)).stdout == run("plan", "").stdout


@pytest.mark.parametrize("keys, message", [
    (["cp_comm_type=p2p"], "cp_comm_type must be a2a"),
    (["parallel.fsdp="], "needs parallel.fsdp"),
    (["attn_implementation=sdpa"], "needs attn_implementation flash_attention_2"),
    (["seq_length=1001"], "it must be divisible by context_parallel_size (4)"),
])
def test_conditions(run, keys, message):
    done = run("predict", ulysses(4), *sets(*keys), check=2)
    assert message in done.stderr
