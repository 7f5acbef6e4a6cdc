"""predict --against: by how much memory and step grew since an earlier prediction, and gates on that."""

import json

import pytest

from conftest import one_error

LAYER = "docs/examples/one-layer.yaml"


@pytest.fixture(scope="module")
def earlier(offsim, tmp_path_factory):
    path = tmp_path_factory.mktemp("earlier") / "base.json"
    path.write_text(offsim("predict", LAYER, "--json", check=0).stdout)
    return path


def figures(offsim, *arguments):
    result = json.loads(offsim("predict", LAYER, *arguments, "--json", check=0).stdout)["result"]
    peaks = [max(rank[f"{which}_peak_bytes"] for rank in result["ranks"]) for which in ("allocated", "reserved")]
    return [*peaks, result["step_time_s"]]


@pytest.mark.parametrize("more", [[], ["--set", "num_layers=2"], ["--set", "seq_length=2048"]])
def test_growth_is_that_of_the_figures(offsim, earlier, more):
    grew = [100 * (now / before - 1) for before, now in zip(figures(offsim), figures(offsim, *more))]
    line = offsim("predict", LAYER, *more, "--against", earlier, "--brief", check=0).stdout.splitlines()[-1]
    assert line == (f"against   {earlier}: the allocated peak of the rank with most {grew[0]:+.2f} %, the reserved {grew[1]:+.2f} %, "
                    f"the step {grew[2]:+.2f} %")
    for option, values in (("--max-peak-growth", grew[:2]), ("--max-step-growth", grew[2:])):
        for limit in (0, 30, 1000):
            run = offsim("predict", LAYER, *more, "--against", earlier, option, limit)
            broken = [value for value in values if value > limit]
            assert run.status == (1 if broken else 0)
            assert run.stderr.count(f"gate {option}: ") == len(broken)
            assert all(f" grew by {value:.2f} %, at most {limit:.2f} %" in run.stderr for value in broken)


def test_json_stays_what_it_is(offsim, earlier):
    more = ["--set", "num_layers=2", "--json"]
    gated = offsim("predict", LAYER, *more, "--against", earlier, "--max-peak-growth", 2)
    assert gated.status == 1 and gated.stdout == offsim("predict", LAYER, *more).stdout


@pytest.mark.parametrize("content, message", [
    ("{}", "no result of offsim predict --json: it has no result"),
    ('{"result": {}}', "it has no ranks"),
    ('{"result": {"ranks": 7}}', "expected a list"),
    ('{"result": {"ranks": [], "step_time_s": 1}}', "is 0"),
    ('{"result": {"ranks": [{"allocated_peak_bytes": 1}]}}', "reserved_peak_bytes"),
    ('{"result": {"ranks": [{"allocated_peak_bytes": 1, "reserved_peak_bytes": 1}]}}', "step_time_s"),
    ('{"result": {"step_time_s": 0, "ranks": [{"allocated_peak_bytes": 1, "reserved_peak_bytes": 1}]}}', "is 0"),
])
def test_other_files(offsim, tmp_path, content, message):
    (tmp_path / "other.json").write_text(content)
    assert message in one_error(offsim("predict", LAYER, "--against", tmp_path / "other.json"), 2)


def test_a_gate_needs_the_earlier_prediction(offsim, earlier):
    for option in ("--max-peak-growth", "--max-step-growth"):
        assert "--against FILE" in one_error(offsim("predict", LAYER, option, 2), 2)
    assert "--json and --plot" in one_error(offsim("predict", LAYER, "--compare-systems", "--against", earlier), 2)
