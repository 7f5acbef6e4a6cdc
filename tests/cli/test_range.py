"""predict --range: in which range a measured step should be, and which rates it comes from."""
import json
import math
import re

import pytest

from conftest import ROOT, sets

LAYERS = ["docs/examples/one-layer.yaml", *sets("num_layers=4")]
H200 = ["--machine", "H200-SXM"]
# Parts are 1.28 standard deviations.
WIDTHS = 1.28


def predict(offsim, *arguments):
    return json.loads(offsim("predict", "--brief", "--json", *arguments, check=0).stdout)


def seconds(found):
    return float(found["result"]["step_time_s"])


def test_squares_add_up(offsim):
    found = predict(offsim, *LAYERS, *H200, "--range")
    told, step = found["range"], seconds(found)
    assert told["nominal_percent"] == 80
    for end, part, sign in (("least_s", "faster_s", -1), ("most_s", "slower_s", 1)):
        parts = [float(one[part]) for one in told["parts"]]
        assert min(parts) >= 0 and max(parts) > 0
        assert float(told[end]) == pytest.approx(step + sign * math.hypot(*parts), rel=1e-5)


@pytest.mark.parametrize("experts, width", [([], 0.03), (["num_experts=4", "moe_ffn_hidden_size=512"], 0.12)])
def test_exact_rates_leave_what_is_not_modelled(offsim, experts, width):
    scenario = [*LAYERS, *sets(*experts), "--machine", "ideal"]
    found = predict(offsim, *scenario, "--range")
    step, told = seconds(found), found["range"]
    assert float(told["most_s"]) == pytest.approx(step * (1 + width * WIDTHS), rel=1e-5)
    assert float(told["least_s"]) == pytest.approx(step * (1 - width * WIDTHS), rel=1e-5)
    assert predict(offsim, *LAYERS)["range"] is None
    text = offsim("predict", *scenario, "--range", check=0).stdout
    assert re.search(r"^range .* in 80 of 100 runs; most of that is by what is not modelled: -", text, re.M)


@pytest.mark.parametrize("rates, keys", [("copies", ["d2h_bytes_per_us", "h2d_bytes_per_us"]), ("attention", ["attention_backward_gflops"])])
def test_a_part_is_the_step_with_other_rates(offsim, tmp_path, rates, keys):
    """On a machine whose other keys are exact; the same step on one with the rates that an error of one width gives."""
    sections = re.split(r"(?m)^(?=\w+:$)", (ROOT / "sim/machine/presets/ideal.yaml").read_text())
    changed = r"(?m)^(  (?:%s): )(\d+) exact" % "|".join(keys)

    def machine(replacement):
        path = tmp_path / "machine.yaml"
        path.write_text("".join(re.sub(changed, replacement, s) if re.match("link|compute", s) else s for s in sections))
        return [*LAYERS, "--machine", path]

    step, told = seconds(predict(offsim, *machine(r"\1\2 exact"))), predict(offsim, *machine(r"\1\2 assumed"), "--range")["range"]
    parts = {one.pop("rates"): one for one in told["parts"]}
    assert [name for name, part in parts.items() if float(part["slower_s"]) > 0] == ["what is not modelled", rates]
    error = float(re.search(r'\{ "%s", \{ (\d+),' % rates, (ROOT / "sim/machine/error.c").read_text())[1]) / 1000
    slower = seconds(predict(offsim, *machine(lambda m: f"{m[1]}{math.ceil(int(m[2]) / (1 + error))} exact")))
    assert float(parts[rates]["slower_s"]) == pytest.approx((slower - step) * WIDTHS, rel=1e-3)
    faster = seconds(predict(offsim, *machine(lambda m: f"{m[1]}{int(int(m[2]) * (1 + error))} exact")))
    assert float(parts[rates]["faster_s"]) == pytest.approx((step - faster) * WIDTHS, rel=1e-3)


def test_threads_cannot_change_a_byte(offsim):
    one, seven = (offsim("predict", *LAYERS, *H200, "--json", "--range", "--threads", n, check=0).stdout for n in (1, 7))
    assert one == seven


EXPERTS = sets("num_experts=8", "moe_router_topk=2", "moe_ffn_hidden_size=512", "expert_model_parallel_size=4", "world_size=4",
               "global_batch_size=4")


def test_an_uneven_load_takes_what_moe_imbalance_does(offsim):
    scenario = [*LAYERS, *EXPERTS, *H200]
    found, more = (predict(offsim, *scenario, *told) for told in (["--range"], sets("moe_imbalance=1.1")))
    growth = [b["allocated_peak_bytes"] - a["allocated_peak_bytes"] for a, b in zip(found["result"]["ranks"], more["result"]["ranks"])]
    assert found["uneven_load"] == {"more_rows_percent": 10, "peak_growth_bytes": growth}
    assert growth[0] > 0 and more["uneven_load"] is None
    text = offsim("predict", *scenario, "--range", check=0).stdout
    assert re.search(rf"^experts   an even load is assumed; with 10 % more rows the peak of rank 0 grows most, by {growth[0] / 2**20:.1f} MiB$", text, re.M)


@pytest.mark.parametrize("keys", [["moe_expert_capacity_factor=1", "moe_pad_expert_input_to_capacity=true"],
                                  ["expert_model_parallel_size=1"]])
def test_where_routing_decides_no_rows_nothing_is_said(offsim, keys):
    scenario = [*LAYERS, *EXPERTS, *sets(*keys), *H200, "--range"]
    assert predict(offsim, *scenario)["uneven_load"] is None
    assert "\nexperts " not in offsim("predict", *scenario, check=0).stdout
