"""Megatron-LM's timers wait for the device, and logging them takes host time."""

import itertools

import pytest

from conftest import sets

MICROBATCHES = 4


def lines_of(offsim, *settings):
    """Op, or phase, of each line of the last rank, with its number of operators."""
    plan = offsim("plan", *sets("pipeline_model_parallel_size=2", "world_size=2", f"global_batch_size={MICROBATCHES}", "clip_grad=0",
                                "check_for_nan_in_loss_and_grad=false", *settings), "docs/examples/tiny-llama.yaml").stdout
    return [line.split() for line in plan[plan.index("\nrank 1\n") + 1:].splitlines() if line.strip()]


def works(lines):
    return [int(words[2]) for words in lines if words[0] == "host_work"]


def test_levels(offsim):
    none = lines_of(offsim, "timing_log_level=0")
    assert works(none) == []
    steps = lines_of(offsim, "timing_log_level=1")
    assert len(works(steps)) == 2 and works(steps)[0] < works(steps)[1]
    passes = lines_of(offsim, "timing_log_level=2")
    calls = sum(message for message, _ in itertools.groupby(words[0] in ("send", "recv") for words in passes))
    assert len(works(passes)) == 2 + 4 * MICROBATCHES + calls


def test_a_pass_begins_and_ends_with_an_idle_device(offsim):
    lines = lines_of(offsim, "timing_log_level=2")
    for i, words in enumerate(lines):
        if words[0] in ("forward", "backward"):
            assert lines[i - 1][0] == "host_wait"


@pytest.mark.parametrize("day, times, operators", [("2025-11-24", "false", [98]), ("2025-11-24", "true", [196]),
                                                   ("2025-11-25", "true", [])])
def test_log(offsim, day, times, operators):
    """#2210 made logs without timers free."""
    assert works(lines_of(offsim, "log_interval=1", f"software.megatron_day={day}", f"log_timers_to_tensorboard={times}")) == operators
    assert works(lines_of(offsim, "log_interval=2", f"software.megatron_day={day}", f"log_timers_to_tensorboard={times}")) == []
