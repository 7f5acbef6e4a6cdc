"""GPUs at their power limit: who is slowed, and by how much beside whom. Step times that were measured at the limit are in
test_hf.py, test_hf_offload.py and test_axolotl.py."""

import json

import pytest

from acceptance import RECOMPUTE, TRL, TRL_SYNC
from conftest import sets

LAYERS = "docs/examples/hf-16-layers.yaml"
PIPELINE = "docs/examples/deepseek-v3-proxy-h100.yaml"
NEVER = ("power_limit_w", 0)


@pytest.fixture
def predict(offsim, root, tmp_path):
    """All iterations of a scenario on a shipped machine with other keys of its power."""
    def run(scenario, preset, *settings, changed=()):
        text = (root / f"sim/machine/presets/{preset}.yaml").read_text()
        for key, value in dict(changed).items():
            assert text.count(f"\n  {key}: ") == 1
            text = text.replace(f"\n  {key}: ", f"\n  {key}: {value} # ")
        machine = tmp_path / "machine.yaml"
        machine.write_text(text)
        found = json.loads(offsim("predict", scenario, "--machine", machine, "--json", *sets(*settings), check=0).stdout)
        return {iteration: found[iteration] for iteration in ("baseline", "warmup", "result")}
    return run


def busy_s(prediction):
    return max(rank["compute_busy_s"] for rank in prediction["result"]["ranks"])


@pytest.mark.parametrize("scenario, preset", [(LAYERS, "H200-SXM"), (PIPELINE, "H100-SXM")])
def test_no_limit_is_a_clock_that_stays(predict, scenario, preset):
    """However it is said: there is no limit, it is never reached, products take no energy, or a lower clock costs nothing."""
    never = predict(scenario, preset, changed=[NEVER])
    unslowed = [("power_slowdown_permille", 0), ("attention_slowdown_permille", 0)]
    for changed in ([("power_limit_w", 100000)], [("product_energy_fj", 0)], unslowed):
        assert predict(scenario, preset, changed=changed) == never


def test_attention_has_a_slowdown_of_its_own(predict):
    """With 0 it is that of products; the larger, the longer a step at the limit takes."""
    steps = [predict(LAYERS, "H200-SXM", changed=[("attention_slowdown_permille", permille)])["result"]["step_time_s"]
             for permille in (0, 370, 525, 800)]
    assert steps[0] == steps[1] < steps[2] < steps[3]


@pytest.mark.parametrize("scenario, preset", [(LAYERS, "H200-SXM"), (PIPELINE, "H100-SXM")])
def test_a_limit_slows(predict, scenario, preset):
    never = predict(scenario, preset, changed=[NEVER])
    slowed = predict(scenario, preset)
    assert slowed["baseline"]["step_time_s"] > never["baseline"]["step_time_s"]


def test_a_lower_limit_slows_more(predict):
    steps = [predict(LAYERS, "H200-SXM", changed=[("power_limit_w", watts)])["result"]["step_time_s"]
             for watts in (500, 600, 700, 800, 900)]
    assert steps == sorted(steps, reverse=True) and steps[0] > steps[-1]


def test_a_lack_of_part_of_a_step(predict):
    """An optimizer that moves bytes for 200 ms brings the mean below the limit, and comes too late for the products."""
    settings = ("optimizer=adam", "num_layers=64", "seq_length=3072")
    slowed, never = (predict(LAYERS, "H200-SXM", *settings, changed=changed) for changed in ([], [NEVER]))
    assert slowed["result"]["step_time_s"] > 1.02 * never["result"]["step_time_s"]


def test_a_gpu_that_waits_is_slowed_less(predict):
    """The more of the step it waits for copies, the less; one that copies most of the time keeps its clock."""
    settings = [RECOMPUTE, TRL + RECOMPUTE, TRL_SYNC + RECOMPUTE, TRL, TRL_SYNC]
    slower = [busy_s(predict(LAYERS, "H200-SXM", *words)) / busy_s(predict(LAYERS, "H200-SXM", *words, changed=[NEVER]))
              for words in settings]
    assert slower == sorted(slower, reverse=True)
    assert slower[0] > 1.1 > slower[2] > slower[-1] == 1


def test_collectives_draw_power(predict):
    """The more a byte takes that ranks send each other, the longer a step at the limit; a GPU alone sends none."""
    energies = [[("exchange_energy_fj", energy_fj)] for energy_fj in (0, 450000, 900000)]
    together, alone = ([predict(scenario, preset, changed=changed)["result"]["step_time_s"] for changed in energies]
                       for scenario, preset in ((PIPELINE, "H100-SXM"), (LAYERS, "H200-SXM")))
    assert together[0] < together[1] < together[2]
    assert alone[0] == alone[1] == alone[2]


def test_memory_has_no_clock(predict):
    """What the limit moves in time takes the same memory in program order."""
    kept, slowed = (predict(PIPELINE, "H100-SXM", changed=changed) for changed in ([NEVER], []))
    for one, other in zip(kept["result"]["ranks"], slowed["result"]["ranks"]):
        for key in ("static_bytes", "requested_peak_bytes", "steady_allocated_peak_bytes", "simulated_saving_bytes", "d2h_bytes",
                    "host_pinned_peak_bytes"):
            assert one[key] == other[key]


@pytest.mark.parametrize("level_bytes", [12800000000, 12 << 30])
def test_a_copy_that_a_lower_clock_hides_makes_nobody_faster(predict, level_bytes):
    """At full clock compute waits for copies; slowed, it does not, so it draws what it draws without copies. With copies
    that slow no kernel, the step is then that without offload."""
    settings = (*RECOMPUTE, "recompute_layers=([0,1]*8)", "selective_checkpointing=true",
                "selective_checkpointing_save=attention,aten::mm", "system=planned", f"planned_device_bytes={level_bytes}")
    beside = [(f"{kind}_slowdown_{way}_permille", 0) for kind in ("gemm", "memory") for way in ("d2h", "h2d")]
    never, slowed = (predict(LAYERS, "H200-SXM", *settings, changed=beside + power) for power in ([NEVER], []))
    assert never["result"]["ranks"][0]["exposed_d2h_s"] > 0.004 * never["result"]["step_time_s"]
    waits_s = slowed["result"]["ranks"][0]["exposed_d2h_s"]
    assert waits_s < 0.002 * slowed["result"]["step_time_s"]
    assert 0 <= slowed["result"]["step_time_s"] - slowed["baseline"]["step_time_s"] <= waits_s
