"""Pages of predict, tune, sweep and compare: one file each, the figures of --json, and what a browser draws of them."""

import html
import json
import math
import re
import shutil
import subprocess

import pytest

from conftest import ROOT, one_error, sets
from test_compare_real import as_snapshot, as_trace, record_of
from test_compare_times import as_run

PROXY = "docs/examples/deepseek-v3-proxy-h100.yaml"
FIELDS = 7
CHROMIUM = shutil.which("chromium")


def block(page, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])


def text_of(page):
    return html.unescape(re.search("<pre>(.*?)</pre>", page, re.S)[1])


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
    assert text_of(page) == offsim("predict", PROXY, check=0).stdout


@pytest.mark.parametrize("of", ["page", "tuned", "swept", "compared"])
def test_nothing_is_loaded(of, request):
    page = request.getfixturevalue(of)
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


def test_pinned_memory_is_that_of_the_plan(offsim, page):
    for number, rank in enumerate(block(page, "timeline")["ranks"]):
        sizes, now, most = {}, 0, 0
        for words in map(str.split, offsim("plan", PROXY, "--rank", number, check=0).stdout.splitlines()):
            if words[:2] == ["host_alloc", "host"] and "pinned_host" in words:
                sizes[words[2]] = int(words[words.index("bytes") - 1])
                now += sizes[words[2]]
            elif words[:2] == ["host_free", "host"]:
                now -= sizes.get(words[2], 0)
            most = max(most, now)
        assert max(rank["curves"]["pinned"][1::2]) == most > 0


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


ONE, LAYERS = "docs/examples/one-layer.yaml", "docs/examples/te-layers.yaml"
TUNE = ["tune", ONE, *sets("num_layers=3"), "--gpu-memory", 2]
SWEEP = ["sweep", ONE, "--over", "num_layers=2|400|4|3", "--over", "offload_modules=core_attn|layer_input|core_attn,attn_proj",
         "--machine", "H200-SXM"]


@pytest.fixture(scope="module")
def tuned(offsim):
    return offsim(*TUNE, "--html", "-", check=0).stdout


@pytest.fixture(scope="module")
def swept(offsim):
    return offsim(*SWEEP, "--html", "-", check=0).stdout


def test_a_page_of_tune_is_its_front(offsim, tuned, tmp_path):
    assert block(tuned, "figures") == json.loads(offsim(*TUNE, "--front", "--json", check=0).stdout)
    assert len(block(tuned, "figures")["best"]) > 1
    page = tmp_path / "page.html"
    assert text_of(tuned) == offsim(*TUNE, "--html", page, check=0).stdout and page.read_text() == tuned
    fastest = json.loads(offsim(*TUNE, "--best", 3, "--json", "--html", page, check=0).stdout)
    assert block(page.read_text(), "figures") == fastest != block(tuned, "figures")


def test_a_page_of_sweep_has_its_rows(offsim, swept, tmp_path):
    path, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    table = offsim(*SWEEP, "-o", path, "--html", page, check=0).stdout
    assert page.read_text() == swept and text_of(swept) == table == offsim(*SWEEP, check=0).stdout
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    figures = block(swept, "figures")
    assert [sum(row["verdict"] == verdict for row in rows) for verdict in ("fits", "does_not_fit", "refused")] == [
        figures[key] for key in ("fit", "do_not_fit", "refused")] == [6, 2, 4]
    order = sorted((row for row in rows if row["verdict"] != "refused"),
                   key=lambda row: (row["missing_bytes"], row["step_time_s"], row["reserved_peak_bytes"]))
    assert figures["rows"] == order
    assert [one.split() for one in block(swept, "commands")] == [
        [word for key, value in row["set"].items() for word in ("--set", f"{key}={value}")] for row in order]
    best = json.loads(offsim("predict", ONE, "--machine", "H200-SXM", "--json",
                             *sets(*(f"{key}={value}" for key, value in order[0]["set"].items())), check=0).stdout)
    assert (figures["why"], figures["safe"]) == (best["bottleneck"], best["safety"]["safe"])
    assert offsim(*SWEEP, "-o", path, "--html", "-", "--threads", 1, check=0).stdout == swept  # all are from the file


def test_nothing_fits(offsim):
    page = block(offsim("tune", ONE, "--gpu-memory", 0.1, "--html", "-", check=0).stdout, "figures")
    assert page["best"] == [] and page["why"] is None
    page = block(offsim("sweep", ONE, "--machine", "H200-SXM", "--over", "num_layers=400|500", "--html", "-", check=0).stdout, "figures")
    assert page["fit"] == 0 and [row["verdict"] for row in page["rows"]] == ["does_not_fit"] * 2 and page["why"] is None


@pytest.mark.parametrize("arguments", [("--json", "--html", "-"), ("--csv", "-", "--html", "-")])
def test_one_output_at_a_time(offsim, arguments):
    assert "standard output is --" in one_error(offsim("tune", ONE, *arguments), 2)


@pytest.fixture(scope="module")
def records(offsim, tmp_path_factory):
    """A prediction, the same as a run of GPUs, and a prediction without offload."""
    predicted, measured, without = (tmp_path_factory.mktemp("records") / name for name in ("a.jsonl", "b.jsonl", "c.jsonl"))
    offsim("predict", "--record", predicted, LAYERS, check=0)
    as_run(predicted, measured)
    offsim("predict", "--record", without, LAYERS, *sets("offload.system=none"), check=0)
    return predicted, measured, without


GATES = ["--max-step-error", 5, "--max-peak-error", 1]


@pytest.fixture(scope="module")
def compared(offsim, records):
    return offsim("compare", *records[:2], *GATES, "--html", "-", check=1).stdout


def assert_lanes_are_ops(page, record_of_side):
    """Each op of a record with a time is a slice of its side, with its times in whole nanoseconds."""
    timeline = block(page, "timeline")
    for side, ops in record_of_side.items():
        for lane in (lane for lane in timeline["ranks"][0]["lanes"] if lane["side"] == side):
            expected = [(op["begin_ps"] // 1000, op["end_ps"] // 1000) for op in ops
                        if op["stream"] == lane["stream"] and op["end_ps"] > op["begin_ps"]]
            assert [one[:2] for one in slices(lane)] == expected
        drawn = sum(len(lane["slices"]) // FIELDS for lane in timeline["ranks"][0]["lanes"] if lane["side"] == side)
        assert drawn == sum(op["end_ps"] > op["begin_ps"] for op in ops)
        assert max(timeline["ranks"][0]["curves"][side][1::2]) == max(
            op["requested_bytes"] for op in ops if op["stream"] == "compute" and op["end_ps"] > op["begin_ps"])


def test_a_page_of_two_records(offsim, records, compared, tmp_path):
    page = tmp_path / "page.html"
    shown = offsim("compare", *records[:2], *GATES, "--html", page, check=1)
    assert page.read_text() == compared and text_of(compared) == shown.stdout
    figures = json.loads(offsim("compare", *records[:2], *GATES, "--json", check=1).stdout)
    assert block(compared, "figures") == figures
    assert [(gate["name"], gate["held"]) for gate in figures["gates"]] == [("max-peak-error", True), ("max-step-error", False)]
    assert_lanes_are_ops(compared, {"predicted": record_of(records[0])[0], "measured": record_of(records[1])[0]})


def test_a_page_with_and_without_offload(offsim, records):
    page = offsim("compare", records[0], records[2], "--html", "-", check=1).stdout
    assert_lanes_are_ops(page, {"a": record_of(records[0])[0], "b": record_of(records[2])[0]})
    steps = [json.loads(records[i].read_text().splitlines()[-2])["steps_ps"] for i in (0, 2)]
    assert [[block(page, "figures")[side]["step_ps"]] for side in "ab"] == steps and steps[0] > steps[1]


def test_records_without_times_have_no_timeline(offsim, tmp_path):
    offsim("run", "--on", "ref", "--steps", 1, "--record", tmp_path / "a", "docs/examples/tiny-llama.yaml", check=0)
    page = offsim("compare", tmp_path / "a", tmp_path / "a", "--html", "-", check=0).stdout
    assert block(page, "figures")["same"] and block(page, "timeline")["ranks"] == []


@pytest.fixture(scope="module")
def real(offsim, records, tmp_path_factory):
    """Its profile and its snapshot are made of the prediction."""
    folder, (ops, _) = tmp_path_factory.mktemp("real"), record_of(records[0])
    (folder / "trace.json").write_text(json.dumps(as_trace(ops)))
    (folder / "snapshot.pickle").write_bytes(as_snapshot(ops, 1 << 30))
    return [LAYERS, folder / "trace.json", folder / "snapshot.pickle", "--same-copies", "--max-peak-error", 0.5]


def test_a_page_of_a_real_run(offsim, records, real, tmp_path):
    page = tmp_path / "page.html"
    shown = offsim("compare", *real, "--html", page, check=1).stdout
    assert text_of(page.read_text()) == shown
    assert block(page.read_text(), "figures") == json.loads(offsim("compare", *real, "--json", check=1).stdout)
    measured = [one for lane in block(page.read_text(), "timeline")["ranks"][0]["lanes"] if lane["side"] == "measured" for one in slices(lane)]
    work = [event for event in json.loads(real[1].read_text())["traceEvents"] if event["cat"] in ("kernel", "gpu_memcpy")]
    assert len(measured) == sum(event["dur"] > 0 for event in work) > 100  # a profiler's clock has whole nanoseconds
    alone = offsim("compare", *real[:2], "--html", "-", check=0).stdout
    assert block(alone, "timeline")["ranks"][0]["curves"]["measured"] == []


def test_one_output_of_compare_at_a_time(offsim, records):
    assert "standard output is --json's" in one_error(offsim("compare", *records[:2], "--json", "--html", "-"), 2)


def draw(page, folder):
    """The elements of the page after its script."""
    file = folder / "page.html"
    file.write_text(page)
    drawn = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
                            "--dump-dom", f"file://{file}"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert 'data-ready="yes"' in drawn
    return drawn


def cells_of(drawn, table):
    rows = re.findall(r"<tr.*?</tr>", re.search(rf'<table id="{table}"[^>]*>(.*?)</table>', drawn, re.S)[1], re.S)
    return [[re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", row)] for row in rows[1:]]


def gibibytes(n):
    """Halves are rounded up, as JavaScript does."""
    unit, digits, name = (2**30, 100, "GiB") if n >= 2**30 else (2**20, 10, "MiB")
    return f"{math.floor(n * digits / unit + 0.5) / digits:.{len(str(digits)) - 1}f} {name}" if n else "0"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_draws_it(page, tmp_path):
    ranks = block(page, "figures")["result"]["ranks"]
    keys = ["static_bytes", "allocated_peak_bytes", None, "simulated_saving_bytes", None, "reserved_peak_bytes",
            "host_pinned_peak_bytes"]
    shown = cells_of(draw(page, tmp_path), "ranks")
    assert len(shown) == len(ranks)
    for rank, cells in zip(ranks, shown):
        for key, cell in zip(keys, cells[1:]):
            assert key is None or cell == gibibytes(rank[key])


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_shows_a_range(offsim, tmp_path):
    page = offsim("predict", "docs/examples/one-layer.yaml", "--machine", "H200-SXM", "--range", "--html", "-").stdout
    told = block(page, "figures")["range"]
    shown = re.search("<dt>range of the step</dt><dd>([0-9.]+) (us|ms) to ([0-9.]+) (us|ms)<small>in 80 of 100 runs",
                      draw(page, tmp_path))
    unit = {"us": 1e6, "ms": 1e3}
    assert float(shown[1]) / unit[shown[2]] == pytest.approx(told["least_s"], rel=0.01)
    assert float(shown[3]) / unit[shown[4]] == pytest.approx(told["most_s"], rel=0.01)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("of", ["tuned", "swept"])
def test_a_browser_draws_points_and_a_table(of, request, tmp_path):
    page = request.getfixturevalue(of)
    figures = block(page, "figures")
    found = figures.get("best") or figures["rows"]
    drawn = draw(page, tmp_path)
    shown = cells_of(drawn, "settings")
    assert [int(cells[0]) for cells in shown] == [*range(1, len(found) + 1)]
    assert [cells[-4:-1] for cells in shown] == [
        [gibibytes(one[key]) for key in ("allocated_peak_bytes", "reserved_peak_bytes", "host_pinned_total_bytes")] for one in found]
    assert len(re.findall(r"<(?:circle|path)[^>]* data-place=", drawn)) == len(found)
    if of == "tuned":
        assert figures["flags"] in html.unescape(drawn) and "does not fit" not in re.search('<p id="legend">.*?</p>', drawn)[0]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_draws_a_comparison(offsim, records, compared, real, tmp_path):
    drawn = draw(compared, tmp_path)
    assert [cells[:2] for cells in cells_of(drawn, "gates")] == [["--max-peak-error", "\u2713 holds"], ["--max-step-error", "\u2717 broken"]]
    assert re.search('<p id="verdict" class="verdict bad">([^<]*)<', drawn)[1].startswith("1 of 2 gates are broken. ")
    worst = block(compared, "figures")["worst_ops"]
    shown = cells_of(drawn, "ops")
    assert [cells[0].split(":")[0] for cells in shown] == [f"rank {op['rank']} op {op['op']}" for op in worst]
    assert {cells[4] for cells in shown} == {"-20.00 %"}
    drawn = draw(offsim("compare", records[0], records[2], "--html", "-", check=1).stdout, tmp_path)
    one, other = (block(drawn, "figures")[side]["step_ps"] for side in "ab")
    assert re.search('<p id="verdict" class="verdict">([^<]*)<', drawn)[1] == (
        f"a takes {one / 1e9:.2f} ms a step, b {other / 1e9:.2f} ms: {100 * (other - one) / one:.2f} %.")
    with_offload, without = (block(drawn, "figures")["ranks"][0][f"requested_peak_bytes_{side}"] for side in "ab")
    assert cells_of(drawn, "memory")[0][:3] == ["rank 0", gibibytes(with_offload), gibibytes(without)]
    drawn = draw(offsim("compare", *real, "--html", "-", check=1).stdout, tmp_path)
    memory = {cells[0]: cells[3] for cells in cells_of(drawn, "memory")}
    peak = block(drawn, "figures")["memory"]["peaks"]["allocated"]
    assert memory["peak allocated"] == f"\u2212{gibibytes(peak['measured_bytes'] - peak['predicted_bytes'])}"
    assert ["1.00 GiB", "0", "1"] in [cells[:3] for cells in cells_of(drawn, "blocks")]
