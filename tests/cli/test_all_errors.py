"""One run reports every error of an input at its place, for each kind of file."""

import re

import pytest

from conftest import ROOT, errors_of

QWEN = "docs/examples/verl-qwen3-8b.json"
SCRIPT = ("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers two --hidden-size 64 --num-attention-heads x --vocab-size 100 "
          "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 1.5\n")
INPUTS = {
    "launch script": (["--megatron-args", "-"], SCRIPT, ["1:58", "1:101", "1:184"]),
    "Megatron mapping": (["--megatron-args", "-", "--world-size", 1],
                         "num_layers: two\nhidden_size: 64\nnum_attention_heads: x\nvocab_size: 9\nmicro_batch_size: -1\n",
                         ["1:13", "3:22", "5:19"]),
    "scenario": (["-"], "model:\n  num_layers: two\n  num_attention_heads: [1]\ntraining:\n  seq_length: long\n",
                 ["2:15", "3:24", "5:15"]),
    "Axolotl": (["--axolotl", "-", "--hf-config", QWEN],
                "base_model: x\nmicro_batch_size: two\ngradient_accumulation_steps: many\nsequence_len: 10k\n",
                ["2:19", "3:30", "4:15"]),
    "verl": (["--verl", "-", "--hf-config", QWEN],
             "data:\n  max_prompt_length: many\n  max_response_length: 1.5\nactor_rollout_ref:\n  model:\n    path: x\n"
             "    enable_gradient_checkpointing: perhaps\n  actor: {strategy: fsdp, ppo_mini_batch_size: 8, "
             "ppo_micro_batch_size_per_gpu: 1}\ntrainer: {n_gpus_per_node: 8, nnodes: 1}\n", ["2:22", "3:24", "7:36"]),
    "config.json": (["--hf-config", "-"],
                    '{"model_type": "llama", "num_hidden_layers": "two", "hidden_size": 64,\n "intermediate_size": [1],\n'
                    ' "num_attention_heads": 4, "vocab_size": "x"}\n', ["1:46", "2:23", "3:42"]),
}


def places(errors):
    return [re.match(r"[^:]+:(\d+:\d+): error: ", line)[1] for line in errors]


@pytest.mark.parametrize("kind", INPUTS)
def test_three_errors(offsim, kind):
    arguments, text, expected = INPUTS[kind]
    assert places(errors_of(offsim("predict", *arguments, stdin=text), 2)) == expected


PLAN = """offsim-plan 1
ranks 2

rank 0
  resident   compute  %0 weight bf16[8] 16 bytes weight
forward m0 c0
  alloc      compute  %1 made bf16[8] 16 bytes saved
  kernel     compute  copy bf16 elements=8 32 bytes %0 -> %1
  d2h        compute  %1
  wait       d2h      e0
  free       compute  %1
rank 1
forward m0 c0
  alloc      compute  %0 made bf16[8] 16 bytes saved
  free       compute  %0
"""


def wrong_plan(**lines):
    """The text with other lines, by number."""
    text = PLAN.splitlines()
    for number, line in lines.items():
        text[int(number[1:]) - 1] = line
    return "\n".join(text) + "\n"


@pytest.mark.parametrize("verb", ["check", "predict"])
def test_plan(offsim, verb):
    """Lines that only use buffers and events do not make later lines wrong; each rank has errors of its own."""
    text = wrong_plan(l8="  kernel     computer copy bf16 elements=8 32 bytes %0 -> %1", l15="  free       comm     %0")
    assert places(errors_of(offsim(verb, "--plan", "-", stdin=text), 2)) == ["8:14", "9:3", "10:23", "15:23"]


def test_plan_whose_buffers_are_unknown(offsim):
    """After a wrong allocation only the words of a line are checked, up to the next rank."""
    text = wrong_plan(l7="  alloc      compute  %1 made bf8[8] 16 bytes saved", l10="  wait       d2h      0",
                      l14="  alloc      compute  %1 made bf16[8] 16 bytes saved")
    assert places(errors_of(offsim("check", "--plan", "-", stdin=text), 2)) == ["7:31", "10:23", "14:23"]


def test_trace(offsim, tmp_path):
    """Lines do not depend on each other; if each is right, the ops that two of them describe are errors."""
    trace = tmp_path / "trace.jsonl"
    offsim("predict", "docs/examples/one-layer.yaml", "--record", trace, check=0)
    lines = trace.read_text().splitlines()
    wrong = [*lines[:3], lines[3].replace('"step":0', '"step":7'), lines[4], lines[5].replace('"rank"', '"rink"'), *lines[6:]]
    twice = [*lines[:5], lines[2], lines[4], *lines[5:]]
    for text, expected in ((wrong, [4, 6]), (twice, [6, 7])):
        trace.write_text("\n".join(text) + "\n")
        found = places(errors_of(offsim("compare", trace, trace), 2))
        assert [int(place.split(":")[0]) for place in found] == expected


def test_machine_file(offsim, tmp_path):
    text = (ROOT / "sim/machine/presets/ideal.yaml").read_text()
    wrong, lines = tmp_path / "wrong.yaml", text.splitlines()
    numbers = [i for i, line in enumerate(lines) if re.match(r"  (d2h|h2d|duplex)_bytes_per_us:", line)]
    for i in numbers:
        lines[i] = re.sub(r": .*", ": fast", lines[i])
    wrong.write_text("\n".join(lines) + "\n")
    run = offsim("predict", "--machine", wrong, "docs/examples/one-layer.yaml")
    assert [place.split(":")[0] for place in places(errors_of(run, 2))] == [str(i + 1) for i in numbers] and len(numbers) >= 3
