"""predict --html: one file, the figures of --json, and a page that a browser draws."""

import html
import json
import re
import shutil
import subprocess

import pytest

from conftest import ROOT, one_error

PROXY = "docs/examples/deepseek-v3-proxy-h100.yaml"
FIELDS = 7
CHROMIUM = shutil.which("chromium")


def block(page, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])


@pytest.fixture(scope="module")
def page(offsim):
    return offsim("predict", PROXY, "--html", "-", check=0).stdout


def slices(lane):
    """(start, end, kind, text, site, phase, count) in ns."""
    at, numbers = 0, lane["slices"]
    for i in range(0, len(numbers), FIELDS):
        start = at + numbers[i]
        at = start + numbers[i + 1]
        yield (start, at, *numbers[i + 2:i + FIELDS])


def test_figures_are_those_of_json(offsim, page):
    assert block(page, "figures") == json.loads(offsim("predict", PROXY, "--json", check=0).stdout)


def test_text_is_that_of_the_terminal(offsim, page):
    shown = html.unescape(re.search("<pre>(.*?)</pre>", page, re.S)[1])
    assert shown == offsim("predict", PROXY, check=0).stdout


def test_nothing_is_loaded(page):
    markup = re.sub(r'<script type="application/json".*?</script>|<pre>.*?</pre>', "", page, flags=re.S)
    assert not re.search(r"https?:|//[a-z]+\.|src=|@import|url\(", markup)
    assert "@" not in re.sub(r"@media", "", markup)
    assert len(page) < 2_000_000


def test_timeline_agrees_with_the_figures(page):
    timeline, figures = block(page, "timeline"), block(page, "figures")
    waits = timeline["kinds"].index("waits")
    assert timeline["detail"] == "op" and len(timeline["ranks"]) == len(figures["result"]["ranks"])
    for rank, result in zip(timeline["ranks"], figures["result"]["ranks"]):
        for lane in rank["lanes"]:
            last = 0
            for start, end, kind, text, site, phase, count in slices(lane):
                assert last <= start <= end <= timeline["step_ns"] and count == 1  # messages of a stream may overlap
                assert text < len(timeline["texts"]) and site < len(timeline["sites"]) and phase < len(rank["phases"])
                last = start
        lanes = {lane["stream"]: list(slices(lane)) for lane in rank["lanes"]}
        busy = {name: sum(end - start for start, end, kind, *_ in of if kind != waits) for name, of in lanes.items()}
        assert busy["compute"] == pytest.approx(1e9 * float(result["compute_busy_s"]), abs=len(lanes["compute"]))
        assert busy["d2h"] == pytest.approx(1e9 * float(result["d2h_busy_s"]), rel=1e-4)
        assert max(rank["curves"]["allocated"][1::2]) == result["steady_allocated_peak_bytes"]
        peak = max(sum(row[2] for row in instant["rows"]) + instant["rest_bytes"] for instant in rank["instants"])
        assert peak == sum(result["peak_by_class"].values())


def test_large_plans_stay_small(offsim):
    page = offsim("predict", "tests/bench/deepseek-v3.yaml", "--html", "-", check=0).stdout
    timeline = block(page, "timeline")
    count = sum(len(lane["slices"]) // FIELDS for rank in timeline["ranks"] for lane in rank["lanes"])
    assert timeline["detail"] in ("module", "pass") and count <= 60000 and len(page) < 4_000_000


def test_names_are_escaped(offsim, tmp_path):
    scenario = tmp_path / "a<script>&b.yaml"
    scenario.write_text((ROOT / "docs/examples/one-layer.yaml").read_text())
    page = offsim("predict", scenario, "--html", "-", check=0).stdout
    assert "a<script>&b" not in page and "a&lt;script>&amp;b.yaml" in page


@pytest.mark.parametrize("arguments", [("--compare-systems", PROXY), ("--plan", "-")])
def test_pages_of_one_setting_only(offsim, arguments):
    assert "outputs only" in one_error(offsim("predict", "--html", "x.html", *arguments, stdin=""), 2)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_draws_it(page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page)
    drawn = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
                            "--dump-dom", f"file://{file}"], capture_output=True, text=True, timeout=60, check=True).stdout
    figures = block(page, "figures")
    assert 'data-ready="yes"' in drawn
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", re.search(r'<table id="ranks">(.*?)</table>', drawn, re.S)[1])
    for i, rank in enumerate(figures["result"]["ranks"]):
        shown = cells[8 * i:8 * i + 8]  # the bar is no text
        keys = ["static_bytes", "allocated_peak_bytes", None, "simulated_saving_bytes", None, "reserved_peak_bytes",
                "host_pinned_peak_bytes"]
        for key, cell in zip(keys, shown[1:]):
            assert key is None or cell == f"{rank[key] / 2**30:.2f} GiB"
