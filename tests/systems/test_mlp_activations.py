"""Offloading of a dense MLP's activations (docs/examples/mlp-activations.yaml), by closed forms."""

import json

import pytest

from conftest import sets

SCENARIO = "docs/examples/mlp-activations.yaml"
FC1_OUTPUT = 4096 * 2 * 28672 // 4 * 2  # bytes: tokens x gate and up over TP, in bf16
LAYERS, CHUNKS, MICROBATCHES = 10, 2, 16  # of a chunk, of a rank, of a step


def ranks(offsim, *keys):
    return json.loads(offsim("predict", SCENARIO, *sets(*keys), "--json").stdout)["result"]["ranks"]


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5])
def test_a_fraction_of_the_layers_moves(offsim, fraction):
    stays = int(LAYERS * (1 - fraction))  # of each chunk, the last ones; the margin is among them
    for rank in ranks(offsim, f"activation_offload_fraction={fraction}"):
        assert rank["d2h_bytes"] == rank["h2d_bytes"] == (LAYERS - stays) * CHUNKS * MICROBATCHES * FC1_OUTPUT


def test_saving_is_what_the_theory_says(offsim):
    for rank in ranks(offsim):
        assert 0.99 <= float(rank["saving_ratio"]) <= 1.01


def test_recomputing_drops_the_result(offsim):
    """Per layer in flight, one tensor of half of fc1's width."""
    kept = ranks(offsim, "recompute_modules=core_attn")[0]["steady_allocated_peak_bytes"]
    dropped = ranks(offsim)[0]["steady_allocated_peak_bytes"]
    assert (kept - dropped) % (FC1_OUTPUT // 2) < 64 << 20
    assert kept - dropped > LAYERS * CHUNKS * FC1_OUTPUT // 2
