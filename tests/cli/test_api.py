"""liboffsim answers what the command line prints."""

import json
import shutil
import subprocess

import pytest

from conftest import ROOT, sets

CALLS = {"predict": ["predict", "--json"], "page": ["predict", "--html", "-"], "check": ["check", "--json"],
         "findings": ["check"], "scenario": ["predict", "--print-scenario"], "plan": ["plan"], "first-plan": ["plan", "--iteration", "warmup"]}
SCENARIOS = [("docs/examples/one-layer.yaml", ["num_layers=4"]), ("docs/examples/tiny-deepseek.yaml", []),
             ("docs/examples/hf-layers.yaml", ["offload.system=trl"])]


@pytest.fixture(params=["release", "san"])
def api(request):
    program = ROOT / "out" / request.param / "api_texts"
    if not program.exists():
        pytest.skip(f"out/{request.param} is not built")
    return lambda *words: subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("scenario, settings", SCENARIOS, ids=lambda value: "" if isinstance(value, list) else value)
def test_same_text(offsim, api, call, scenario, settings):
    there = offsim(*CALLS[call], *sets(*settings), scenario)
    here = api(call, scenario, *settings)
    assert here.returncode == 0 and here.stdout == there.stdout and there.status in (0, 1)


def test_same_errors(offsim, api):
    settings = ["num_layers=none", "nonsense=1"]
    there = offsim("predict", *sets(*settings), SCENARIOS[0][0], check=2)
    here = api("predict", SCENARIOS[0][0], *settings)
    assert (here.returncode, here.stdout, here.stderr) == (2, "", there.stderr)
    assert api("predict", "no-such-file.yaml").returncode == 2


def test_the_example_builds_against_an_installed_tree(offsim, tmp_path):
    """As docs/examples/predict.c says at its head; the figures are those of --json."""
    if shutil.which("help2man") is None or shutil.which("pkg-config") is None:
        pytest.skip("help2man or pkg-config is not installed")
    subprocess.run([ROOT / "build/install", "--prefix", tmp_path], check=True, capture_output=True)
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "offsim"], check=True, capture_output=True, text=True,
                           env={"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(tmp_path / "lib/pkgconfig")}).stdout.split()
    program = tmp_path / "predict"
    subprocess.run(["cc", ROOT / "docs/examples/predict.c", *flags, "-o", program], check=True)
    scenario, settings = SCENARIOS[0]
    line = subprocess.run([program, scenario, *settings], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = json.loads(offsim("predict", "--json", *sets(*settings), scenario, check=0).stdout)
    rank = found["result"]["ranks"][0]
    assert line.startswith(f"{rank['reserved_peak_bytes']} bytes reserved of which offload saves "
                           f"{rank['simulated_saving_bytes']}, fits; {int(found['result']['step_time_s'] * 1e6)} us a step, "
                           f"{int(found['baseline']['step_time_s'] * 1e6)} without offload")
