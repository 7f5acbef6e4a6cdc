"""Offload systems that work on checkpoints, through the command line: Axolotl's hidden_states with both
kinds of checkpoints, disk, and selective checkpoints."""

import json
import re

import pytest

from conftest import ROOT, sets

EXAMPLE = "docs/examples/hf-16-layers.yaml"
LAYERS, INPUT_BYTES = 16, 8192 * 4096 * 2
STATISTICS_BYTES = 8192 * 32 * 4  # of attention's softmax: as large as what leaves at least

CHECKPOINTS = ("recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1")
SELECTIVE = "recompute.selective_checkpointing=true"
SYSTEMS = {
    "hidden_states": (),
    "hidden_states_reentrant": (),
    "axolotl_disk": (),
    "transformers": (),
    "selective_checkpointing": (),
    "selective_checkpointing and hidden_states": ("selective_checkpointing_hidden_states=true",),
    "hidden_states on selective": (SELECTIVE,),
}


def words(system, more=()):
    return sets("offload.mode=fixed", f"offload.system={system.split()[0]}", *CHECKPOINTS, *more)


def predict(offsim, scenario, system, more=()):
    done = offsim("predict", scenario, "--json", *words(system, more), check=0)
    return json.loads(done.stdout)


def rank(prediction, iteration="result"):
    return prediction[iteration]["ranks"][0]


# Inputs of layers on the device at the turn; at the loss, where the peak is, nothing else differs.
@pytest.mark.parametrize("system, saved", [
    ("hidden_states", (LAYERS - 2) * INPUT_BYTES),
    ("hidden_states_reentrant", (LAYERS - 2) * INPUT_BYTES),
    ("axolotl_disk", (LAYERS - 8) * INPUT_BYTES),
    ("transformers", LAYERS * INPUT_BYTES),
    # The two newest are one output and its statistics.
    ("selective_checkpointing", (LAYERS - 1) * (INPUT_BYTES + STATISTICS_BYTES)),
    ("selective_checkpointing and hidden_states",
     (LAYERS - 1) * (INPUT_BYTES + STATISTICS_BYTES) + (LAYERS - 2) * INPUT_BYTES),
    ("hidden_states on selective", (LAYERS - 2) * INPUT_BYTES),
])
def test_saving(offsim, system, saved):
    got = rank(predict(offsim, EXAMPLE, system, SYSTEMS[system]))
    assert got["theoretical_saving_bytes"] == saved
    assert got["simulated_saving_bytes"] == saved


RECORDED = json.loads((ROOT / "tests/data/transformers_offload.json").read_text())


@pytest.mark.parametrize("run", RECORDED["runs"], ids=lambda run: f"{run['every_n_layers']} {run['use_reentrant']}")
def test_transformers_moves_the_same_inputs_in_the_same_order(offsim, run):
    """As transformers itself did, recorded by tests/peers/transformers_offload.py."""
    plan = offsim("plan", "docs/examples/hf-checkpoints.yaml", check=0, *sets(
        "system=transformers", f"num_layers={RECORDED['layers']}", f"every_n_layers={run['every_n_layers']}",
        f"use_reentrant={json.dumps(run['use_reentrant'])}")).stdout

    def layers(kind):
        """The layer whose input is copied: the one after that which made it."""
        made = re.findall(rf"^  {kind}  +compute .* @ (?:layer (\d+) |embed_tokens)", plan, re.M)
        return [int(layer) + 1 if layer else 0 for layer in made]

    assert layers("d2h") == run["pack"]
    assert layers("h2d") == run["unpack"]


@pytest.mark.parametrize("every_n", [1, 2, 5, 16])
def test_layers_between_checkpoints_keep_their_activations(offsim, every_n):
    """Live bytes at the loss: between no checkpoints and all, by the number of layers that are none."""
    def live(*more):
        return rank(predict(offsim, EXAMPLE, "none", more))["live_peak_bytes"]

    none = live("recompute_granularity=", "recompute_method=", "recompute_num_layers=")
    every = live()
    checkpoints = -(-LAYERS // every_n)
    assert live(f"every_n_layers={every_n}") == every + (none - every) * (LAYERS - checkpoints) // LAYERS


def test_disk_figures(offsim):
    got = predict(offsim, EXAMPLE, "axolotl_disk")
    assert rank(got)["disk_write_bytes"] == LAYERS * INPUT_BYTES
    assert rank(got)["disk_read_bytes"] == LAYERS * INPUT_BYTES
    assert rank(got)["host_pinned_peak_bytes"] == 0
    assert rank(got, "baseline")["disk_write_bytes"] == 0
    table = offsim("predict", EXAMPLE, *words("axolotl_disk"), check=0).stdout
    assert "\ndisk      rank 0 writes 1.07 GB and reads 1.07 GB a step\n" in table
    assert "\ndisk " not in offsim("predict", EXAMPLE, *words("hidden_states"), check=0).stdout


def test_a_slower_disk_makes_a_longer_step(offsim, root, tmp_path):
    text = (root / "sim/machine/presets/H200-SXM.yaml").read_text()
    slow = tmp_path / "slow.yaml"
    slow.write_text(text.replace("read_bytes_per_us: 24000", "read_bytes_per_us: 240"))
    assert slow.read_text() != text
    steps = [predict(offsim, EXAMPLE, "axolotl_disk", more)["result"]["step_time_s"]
             for more in ((), (f"machine.name={slow}",))]
    # All files but the first to come back are read after the previous one.
    assert steps[1] >= (LAYERS - 1) * INPUT_BYTES / 240e6 > steps[0]


@pytest.mark.parametrize("iteration", ["warmup", "steady"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_plan_reads_back(offsim, system, iteration):
    text = offsim("plan", EXAMPLE, "--iteration", iteration, *words(system, SYSTEMS[system]),
                  check=0).stdout
    assert offsim("plan", "--plan", "-", stdin=text, check=0).stdout == text


# axolotl pull request #3776: Qwen3-8B, 8192 tokens, memory above the loaded model in GB. The peak of these
# is in the backward of the first layer, when all gradients are there.
QWEN3_8B = """
model: {implementation: hf, num_layers: 36, hidden_size: 4096, ffn_hidden_size: 12288,
  num_attention_heads: 32, kv_channels: 128, group_query_attention: true, num_query_groups: 8,
  vocab_size: 151936, normalization: RMSNorm, swiglu: true, add_bias_linear: false,
  qk_layernorm: true, position_embedding_type: rope, untie_embeddings_and_output_weights: true,
  fused_rms_norm: false}
training: {seq_length: 8192, micro_batch_size: 1, bf16: true, optimizer: none}
"""


@pytest.mark.parametrize("system, published_gb", [
    ("hidden_states", 17.09),
    ("hidden_states_reentrant", 17.22),
])
def test_published_peaks(offsim, tmp_path, system, published_gb):
    scenario = tmp_path / "qwen3-8b.yaml"
    scenario.write_text(QWEN3_8B)
    got = rank(predict(offsim, scenario, system))
    above_gb = (got["steady_allocated_peak_bytes"] - got["static_bytes"]) / 1e9
    assert (got["peak_phase"], got["peak_layer"]) == ("backward", 0)
    assert above_gb == pytest.approx(published_gb, rel=0.002)
