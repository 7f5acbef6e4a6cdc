"""Frozen weights that visit the device, alone and beside systems of activations."""

import json
import re

import pytest

from conftest import ROOT, sets

EXAMPLE = "docs/examples/hf-frozen.yaml"
RECORDED = json.loads((ROOT / "tests/data/axolotl_layers.json").read_text())
LINE = re.compile(r"  (\w+) +(\w+) +(.*)")
NAME = re.compile(r"^  (?:resident|alloc|host_alloc) +\w+ +(%\d+) (\S+)", re.M)
BESIDE = ["trl", "trl_sync", "hidden_states", "hidden_states_reentrant", "selective_checkpointing", "axolotl_disk",
          "transformers"]
REENTRANT = ("hidden_states_reentrant", "axolotl_disk")


def layer_of(site):
    found = re.search(r"layer (\d+)", site)
    return int(found[1]) if found else None


def issued(text):
    """The events of the recorded form (tests/peers/axolotl_layers.py)."""
    names, events, copies, recorded = dict(NAME.findall(text)), [], {}, {}
    for kind, stream, rest in LINE.findall(text[text.index("\nforward m0"):]):
        if kind in ("d2h", "h2d"):
            weights = names[rest.split()[0]] == "weight"
            number = layer_of(rest) if weights else 0 if layer_of(rest) is None else layer_of(rest) + 1
            event = ["out" if kind == "d2h" else "in", stream, f"{'weights' if weights else 'input'} {number}"]
            if events[-1:] != [event]:
                copies[stream] = copies.get(stream, 0) + 1
        elif kind == "record":
            recorded[rest.split()[0]] = (stream, copies.get(stream, 0))
            continue
        elif kind == "wait":
            event = ["wait", stream, *recorded[rest.split()[0]]]
        elif kind == "host_wait":
            event = ["host waits", recorded[rest.split()[0]][0]]
        elif kind == "kernel" and layer_of(rest) is not None:
            event = ["run", layer_of(rest)]
        else:
            continue
        if event[0] == "wait" or events[-1:] != [event]:
            events.append(event)
    return events


def without_repeats(events):
    return [e for i, e in enumerate(events) if e[0] != "run" or events[i - 1] != e]


@pytest.mark.parametrize("job", RECORDED, ids=lambda job: f"{job['layers']}-{job['hidden_states']}-{job['checkpoints']}")
def test_the_order_of_axolotl(offsim, job):
    """As Axolotl's own two engines issued it, recorded by tests/peers/axolotl_layers.py."""
    more = [] if job["checkpoints"] else ["recompute_granularity=", "recompute_method=", "recompute_num_layers="]
    if job["hidden_states"]:
        more += ["system=hidden_states", "layer_offloading=true"]
    plan = offsim("plan", EXAMPLE, *sets(f"num_layers={job['layers']}", "mode=as_released", *more), check=0).stdout
    assert issued(plan[:plan.index("\noptimizer")]) == without_repeats(job["steady"])


def predict(offsim, *settings):
    run = offsim("predict", EXAMPLE, "--json", *sets("mode=fixed", *settings), check=0)
    return json.loads(run.stdout)["result"]["ranks"][0]


@pytest.mark.parametrize("system", BESIDE)
def test_both_engines_move_what_they_move_alone(offsim, system):
    more = [f"system={system}", f"use_reentrant={json.dumps(system in REENTRANT)}"]
    alone, weights = predict(offsim, *more), predict(offsim, "system=layer_offloading", more[1])
    both = predict(offsim, *more, "layer_offloading=true")
    for key in ("d2h_bytes", "h2d_bytes", "theoretical_saving_bytes"):
        assert both[key] == alone[key] + weights[key]


# The logits are larger than a layer's passes, so the peak is where the theory looks: in the loss.
HEAD = ["vocab_size=262144", "num_layers=3"]


@pytest.mark.parametrize("more", [
    ["system=layer_offloading"], ["system=hidden_states", "layer_offloading=true"],
    ["system=transformers", "layer_offloading=true"], ["system=selective_checkpointing", "layer_offloading=true"],
    ["system=trl", "layer_offloading=true", "exclude_output_layer=true"],
], ids=lambda more: more[0])
def test_the_theory_where_the_loss_is_the_peak(offsim, more):
    rank = predict(offsim, *HEAD, *more)
    assert rank["theoretical_saving_bytes"] > 3 * 270e6
    assert rank["simulated_saving_bytes"] == rank["theoretical_saving_bytes"]


def test_a_saved_view_keeps_its_weight(offsim):
    """Without checkpoints a linear saves its weight, transposed: nothing but norms leaves the device."""
    plain = ["recompute_granularity=", "recompute_method=", "recompute_num_layers="]
    kept = predict(offsim, *HEAD, *plain)
    assert kept["theoretical_saving_bytes"] == kept["simulated_saving_bytes"] == 3 * 2 * 4096 * 2
    trl = predict(offsim, *HEAD, *plain, "system=trl", "layer_offloading=true", "trl_params_registered=false",
                  "exclude_output_layer=true")
    assert trl["theoretical_saving_bytes"] > 3 * 270e6
