"""Transformer Engine's second engine by hand: what offsim predict says of it."""

import json

import pytest

from conftest import sets

LAYERS = "docs/examples/te-layers.yaml"
PIPELINE = "docs/examples/pr1752.yaml"
MANUAL = ["cpu_offloading_manual_synchronization=true", "cpu_offloading_num_layers=0", "offload.system=te_v2"]
OTHERS_OFF = ["fine_grained_activation_offloading=false", "offload_modules="]


@pytest.fixture(scope="module")
def ranks(offsim):
    def run(scenario, *keys):
        found = json.loads(offsim("predict", scenario, *sets(*keys), "--json", check=0).stdout)
        return found["result"]["ranks"]
    return run


def test_the_first_layers_by_hand_are_the_automatic_mode(ranks):
    """te_v2's own rule said by hand: the same bytes; the engine holds on to what the other layers save."""
    automatic, = ranks(LAYERS, "cpu_offloading_num_layers=4")
    by_hand, = ranks(LAYERS, *MANUAL, "cpu_offloading_layers=0,1,2,3")
    for key in ("d2h_bytes", "h2d_bytes", "host_pinned_peak_bytes", "theoretical_saving_bytes"):
        assert by_hand[key] == automatic[key] > 0
    assert by_hand["steady_allocated_peak_bytes"] >= automatic["steady_allocated_peak_bytes"]


def test_later_release_costs_memory_and_saves_time(ranks):
    runs = [ranks(LAYERS, *MANUAL, "cpu_offloading_layers=0,1,2", f"cpu_offloading_release_after={after}")[0]
            for after in range(4)]
    waits = [float(one["exposed_d2h_s"]) for one in runs]
    assert waits == sorted(waits, reverse=True) and waits[0] > waits[-1]
    assert runs[0]["steady_allocated_peak_bytes"] <= runs[-1]["steady_allocated_peak_bytes"]


def test_micro_batches_in_flight(ranks):
    """Every chunk of every stage; what the engine cannot do in its automatic mode."""
    one, both = (ranks(PIPELINE, *OTHERS_OFF, *MANUAL, f"cpu_offloading_layers={layers}")
                 for layers in ("0", "0,1"))
    for first, second in zip(one, both):
        assert first["d2h_bytes"] == first["h2d_bytes"] > 0
        assert second["d2h_bytes"] == 2 * first["d2h_bytes"]
        assert second["simulated_saving_bytes"] > first["simulated_saving_bytes"] > 0


def test_retained_host_buffers_count_for_every_micro_batch_in_flight(ranks):
    keys = [*OTHERS_OFF, *MANUAL, "cpu_offloading_layers=0"]
    fresh = ranks(PIPELINE, *keys)
    kept = ranks(PIPELINE, *keys, "cpu_offloading_retain_pinned_cpu_buffers=true")
    for one, other in zip(fresh, kept):
        assert other["d2h_bytes"] == one["d2h_bytes"]
        assert other["host_pinned_peak_bytes"] == other["d2h_bytes"] > one["host_pinned_peak_bytes"]
    # One stage has one set, with any number of micro-batches.
    single = [ranks(LAYERS, "cpu_offloading_num_layers=4", "cpu_offloading_retain_pinned_cpu_buffers=true",
                    f"global_batch_size={size}")[0]["host_pinned_peak_bytes"] for size in (1, 3)]
    assert single[0] == single[1]


def test_without_effect_by_hand(offsim):
    run = offsim("predict", LAYERS, *sets("cpu_offloading_manual_synchronization=true", "cpu_offloading_layers=0"),
                 check=0)
    assert "cpu_offloading_num_layers has no effect with cpu_offloading_manual_synchronization" in run.stderr
    assert "offload   te_v2, by hand: layers 0 of each chunk, freed 1 after, back 1 ahead" in run.stdout


def test_a_printed_scenario_reads_back(offsim, tmp_path):
    keys = sets(*MANUAL, "cpu_offloading_layers=0,2")
    printed = offsim("predict", LAYERS, *keys, "--print-scenario", check=0).stdout
    path = tmp_path / "again.yaml"
    path.write_text(printed)
    assert offsim("predict", path, "--print-scenario", check=0).stdout == printed
