"""optimizer_cpu_offload: what the device saves, and what the host and the link need for it, by closed forms."""

import json

import pytest

from conftest import sets

BASE = "docs/examples/tiny-llama.yaml"
AWARE = ["use_distributed_optimizer=true", "use_precision_aware_optimizer=true"]
ON_HOST = [*AWARE, "optimizer_cpu_offload=true"]
# The matrices of a layer in buffer order, from the last one: MLP, projection, query-key-value.
LAYER = [8192, 16384, 4096, 8192]
EMBEDDINGS = 16384


def predicted(offsim, *keys, machine="ideal"):
    done = offsim("predict", BASE, *sets(*keys), "--machine", machine, "--json")
    return json.loads(done.stdout)["result"]["ranks"][0]




def elements(layers):
    """Of each shard: matrices first, then vectors (two norms a layer, the last norm)."""
    return [EMBEDDINGS, *(e for _ in range(layers) for e in LAYER), EMBEDDINGS] + [64] * (2 * layers + 1)


def on_host(layers, fraction):
    """The elements of the shards that the host steps."""
    moved, total = [], sum(elements(layers))
    for count in elements(layers):
        if sum(moved) < fraction * total:
            moved.append(count)
    return moved


def blocks(count):
    return -(-4 * count // 512) * 512


@pytest.mark.parametrize("fraction", [0, 0.3, 0.5, 1])
@pytest.mark.parametrize("layers", [1, 4])
def test_bytes_follow_from_the_elements_on_the_host(offsim, fraction, layers):
    of_layers = [f"num_layers={layers}"]
    device = predicted(offsim, *of_layers, *AWARE)
    host = predicted(offsim, *of_layers, *ON_HOST, f"optimizer_offload_fraction={fraction}")
    moved = on_host(layers, fraction)
    count = sum(moved)
    assert device["static_bytes"] - host["static_bytes"] == 3 * sum(map(blocks, moved))
    assert host["d2h_bytes"] == host["h2d_bytes"] == 4 * count
    assert host["host_pinned_peak_bytes"] == host["host_pageable_peak_bytes"] == 8 * count
    assert device["host_arithmetic_s"] == device["host_pageable_peak_bytes"] == 0


def test_memory_that_is_not_page_locked(offsim):
    count = sum(elements(4))
    grads = predicted(offsim, *ON_HOST, "pin_cpu_grads=false")
    none = predicted(offsim, *ON_HOST, "pin_cpu_grads=false", "pin_cpu_params=false")
    assert (grads["host_pinned_peak_bytes"], grads["host_pageable_peak_bytes"]) == (4 * count, 12 * count)
    assert (none["host_pinned_peak_bytes"], none["host_pageable_peak_bytes"]) == (0, 16 * count)


def test_time_of_the_host_and_of_the_link(offsim):
    rate = 25000  # bytes in a microsecond: the value of a machine file without the key
    count = sum(elements(4))
    serial = predicted(offsim, *ON_HOST)
    overlapping = predicted(offsim, *ON_HOST, "overlap_cpu_optimizer_d2h_h2d=true")
    for r in (serial, overlapping):
        assert r["host_arithmetic_s"] == pytest.approx(28 * count / rate * 1e-6, rel=1e-6)
        assert r["optimizer_d2h_s"] == r["d2h_busy_s"] > 0
    # while the host steps one parameter, those before it come back
    assert overlapping["step_time_s"] < serial["step_time_s"]


@pytest.mark.parametrize("ranks, threads, bytes_per_us", [(1, None, 125000), (2, None, 25700), (1, 1, 25700), (2, 3, 77100),
                                                          (2, 64, 125000)])
def test_threads_of_the_host(offsim, ranks, threads, bytes_per_us):
    """torchrun leaves one process all cores, and gives several one each."""
    given = [f"world_size={ranks}", f"global_batch_size={4 * ranks}", *([] if threads is None else [f"omp_num_threads={threads}"])]
    one = predicted(offsim, *ON_HOST, *given, machine="ideal")["host_arithmetic_s"]
    own = predicted(offsim, *ON_HOST, *given, machine="H100-SXM")["host_arithmetic_s"]
    assert own / one == pytest.approx(25000 / bytes_per_us, rel=1e-4)


def test_states_are_fp32_whatever_the_types(offsim):
    types = ["exp_avg_dtype=bf16", "exp_avg_sq_dtype=bf16"]
    assert predicted(offsim, *ON_HOST, *types)["host_pageable_peak_bytes"] == 8 * sum(elements(4))


def test_race_of_the_released_code(offsim):
    racing = [*ON_HOST, "optimizer_offload_fraction=0.5", "overlap_cpu_optimizer_d2h_h2d=true", "main_grads_dtype=bf16"]
    assert "read_before_write" in offsim("check", BASE, *sets(*racing), check=1).stdout
    for safe in (["offload.mode=fixed"], ["main_grads_dtype=fp32"], ["overlap_cpu_optimizer_d2h_h2d=false"]):
        assert offsim("check", BASE, *sets(*racing, *safe)).status == 0
