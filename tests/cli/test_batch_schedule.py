"""The batch of an iteration: --iteration N beside the schedules of Megatron-LM, compared with counting samples."""

import random
import re

import pytest

from conftest import one_error

SHAPE = ["--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4", "--vocab-size", "100",
         "--seq-length", "100", "--micro-batch-size", "2"]
ROWS_ACROSS = 4  # micro_batch_size x data parallel size


def batch_of(offsim, flags, *options):
    run = offsim("predict", "--print-scenario", "--megatron-args", "-", "--world-size", 2, *options,
                 stdin=" ".join(SHAPE + flags))
    assert run.status == 0, run.stderr
    return int(re.search(r"global_batch_size: (\d+)", run.stdout).group(1)), run.stderr


def counted(batch_after, iteration, decrease=False):
    """The batch of an iteration by running all before it; batch_after: consumed samples -> batch."""
    consumed = 0
    for _ in range(iteration):
        batch = batch_after(consumed)
        if decrease and batch >= ROWS_ACROSS:
            batch -= batch % ROWS_ACROSS
        consumed += batch
    return batch


def drawn_steps(rng):
    steps = [(0, ROWS_ACROSS * rng.randint(1, 5))]
    for _ in range(rng.randint(0, 4)):
        steps.append((steps[-1][0] + 100 * rng.randint(1, 40), ROWS_ACROSS * rng.randint(1, 9)))
    return steps


@pytest.mark.parametrize("seed", range(25))
def test_steps(offsim, seed):
    rng = random.Random(seed)
    steps = drawn_steps(rng)
    shuffled = rng.sample(steps, len(steps))
    text = rng.choice(" ,").join(f"{tokens}:{batch}" for tokens, batch in shuffled)
    flags = ["--step-batch-size-schedule", f'"{text}"']
    for iteration in rng.sample(range(1, 60), 3):
        expected = counted(lambda consumed: [b for tokens, b in steps if consumed >= tokens // 100][-1], iteration)
        assert batch_of(offsim, flags, "--iteration", iteration)[0] == expected, (text, iteration)
    assert batch_of(offsim, flags)[0] == steps[-1][1]


@pytest.mark.parametrize("seed", range(25))
def test_rampup(offsim, seed):
    rng = random.Random(seed)
    decrease = rng.random() < 0.5
    start, increment = (rng.randint(4, 20), rng.randint(1, 9)) if decrease else (4 * rng.randint(1, 5), 4)
    increments, samples = rng.randint(1, 8), rng.randint(0, 600)
    last = start + increment * increments
    flags = ["--rampup-batch-size", str(start), str(increment), str(samples), "--global-batch-size", str(last)]
    flags += ["--decrease-batch-size-if-needed"] * decrease

    def batch_after(consumed):
        return last if consumed > samples else start + consumed * increments // max(samples, 1) * increment

    for iteration in rng.sample(range(1, 60), 3):
        if samples == 0:
            break
        expected = counted(batch_after, iteration, decrease)
        assert batch_of(offsim, flags, "--iteration", iteration)[0] == expected, (flags, iteration)
    assert batch_of(offsim, flags)[0] == (last // ROWS_ACROSS * ROWS_ACROSS if decrease else last)


def test_suffixes_and_notes(offsim):
    flags = ["--step-batch-size-schedule", '"0:8 0.1K:16 1m:32 2B:40"']
    for iteration, batch in [(1, 8), (2, 16), (626, 16), (627, 32), (625_000, 32), (626_000, 40), (10**12, 40)]:
        assert batch_of(offsim, flags, "--iteration", iteration)[0] == batch, iteration
    assert "global_batch_size is 40, the last of step_batch_size_schedule; --iteration N takes another" \
        in batch_of(offsim, flags)[1]
    assert "global_batch_size is 8, that of iteration 1 by step_batch_size_schedule" \
        in batch_of(offsim, flags, "--iteration", 1)[1]


def test_a_batch_that_is_decreased(offsim):
    batch, notes = batch_of(offsim, ["--global-batch-size", "11", "--decrease-batch-size-if-needed"])
    assert batch == 8 and "global_batch_size is decreased from 11 to 8" in notes


def test_the_printed_scenario_has_that_batch(offsim, tmp_path):
    flags = ["--step-batch-size-schedule", '"0:8 1K:16"']
    run = offsim("predict", "--print-scenario", "--megatron-args", "-", "--world-size", 2, "--iteration", 1,
                 stdin=" ".join(SHAPE + flags))
    path = tmp_path / "run.yaml"
    path.write_text(run.stdout)
    assert offsim("predict", "--print-scenario", path).stdout == run.stdout


@pytest.mark.parametrize("flags, message", [
    ('--step-batch-size-schedule "0:8 x"', 'steps "TOKENS:BATCH" are needed'),
    ('--step-batch-size-schedule "' + " ".join(f"{t * 100}:4" for t in range(4097)) + '"', "are needed, as in"),
    ('--step-batch-size-schedule "0:0"', 'steps "TOKENS:BATCH" are needed'),
    ('--step-batch-size-schedule "1K:8"', "its first step must begin at 0"),
    ('--step-batch-size-schedule "0:8 10:16"', "two steps begin at the same sample"),
    ('--step-batch-size-schedule "0:6"', "it must be divisible by"),
    ('--step-batch-size-schedule "0:8" --global-batch-size 8', "cannot be given with step_batch_size_schedule"),
    ('--step-batch-size-schedule "0:8" --decrease-batch-size-if-needed', "does not work with"),
    ('--step-batch-size-schedule "0:8" --rampup-batch-size 4 4 100', "cannot both be given"),
    ("--rampup-batch-size 4 4 100", "rampup_batch_size needs global_batch_size"),
    ("--rampup-batch-size 4 0 100 --global-batch-size 8", "the first batch, the increment and the samples"),
    ("--rampup-batch-size 4 8 100 --global-batch-size 16", "must be that and a multiple of the increment"),
    ("--rampup-batch-size 4 1 9999999 --global-batch-size 1000000", "at most 4095 increments are possible"),
    ("--rampup-batch-size 8 4 100 --global-batch-size 4", "must be that and a multiple of the increment"),
])
def test_refused(offsim, flags, message):
    run = offsim("predict", "--print-scenario", "--megatron-args", "-", "--world-size", 2,
                 stdin=" ".join(SHAPE) + " " + flags)
    assert message in one_error(run, status=2)
