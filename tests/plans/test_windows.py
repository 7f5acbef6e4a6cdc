"""Attention with a sliding window: which layers of a plan have one, which kernels run, and what it leaves unchanged."""

import json
import re

import pytest

from conftest import sets

LLAMA, HF = (f"docs/examples/tiny-{name}.yaml" for name in ("llama", "llama-hf"))
SHAPE = ["num_layers=4", "seq_length=64"]
FORWARD = re.compile(r"^  kernel +compute +attention_forward .*", re.M)


def attention(offsim, scenario, *settings):
    """Window and layout of each layer of the first micro-batch."""
    plan = offsim("plan", *sets(*SHAPE, *settings), scenario, check=0).stdout
    layers = [dict(re.findall(r" (\w+)=(\d+)", line)) for line in FORWARD.findall(plan)[:4]]
    return [(int(layer.get("window", 0)), int(layer.get("layout", 0))) for layer in layers]


@pytest.mark.parametrize("settings,windows", [
    (["window_size=15,0"], [16, 16, 16, 16]),
    (["window_size=15,0", "window_attn_skip_freq=2"], [16, 0, 16, 0]),
    (["window_size=15,0", "window_attn_skip_freq=[0,1,1,0]"], [0, 16, 16, 0]),
    (["sliding_window=16", "sliding_window_layers=[0,1,1,0]"], [0, 16, 16, 0]),
    (["window_size=63,0"], [0, 0, 0, 0]),  # the whole sequence
    (["window_size=-1,0"], [0, 0, 0, 0]),
])
def test_layers(offsim, settings, windows):
    for scenario, other in ((LLAMA, []), (HF, ["attn_implementation=flash_attention_2"])):
        assert [window for window, _ in attention(offsim, scenario, *settings, *other)] == windows


def test_cudnn_has_no_dropout_in_a_window(offsim):
    """Transformer Engine takes flash-attn in layers with a window, and cuDNN in others."""
    by_position, by_batch = 1, 2
    settings = ["machine.name=H100-SXM", "window_size=15,0", "window_attn_skip_freq=2"]
    layouts = [[layout for _, layout in attention(offsim, LLAMA, *settings, f"attention_dropout={p}")] for p in (0, 0.1)]
    assert layouts == [[by_position] * 4, [by_batch, by_position] * 2]


def test_only_time_changes(offsim):
    """Neither the plan but for the windows, nor memory."""
    def answer(*settings):
        options = [*sets("seq_length=8192", *settings), LLAMA]
        plan = offsim("plan", *options, check=0).stdout
        return plan, json.loads(offsim("predict", "--json", *options, check=0).stdout)["result"]
    (whole, without), (windowed, within) = answer(), answer("window_size=15,0")
    assert whole != windowed and whole == windowed.replace(" window=16", "")
    assert within["step_time_s"] < without["step_time_s"]
    for with_window, other in zip(within["ranks"], without["ranks"], strict=True):
        assert with_window["allocated_peak_bytes"] == other["allocated_peak_bytes"]


def test_a_plan_reads_back(offsim, tmp_path):
    plan = tmp_path / "plan.txt"
    plan.write_text(offsim("plan", *sets(*SHAPE, "window_size=15,0"), LLAMA, check=0).stdout)
    assert " window=16 " in plan.read_text()
    assert offsim("plan", "--plan", plan, check=0).stdout == plan.read_text()
