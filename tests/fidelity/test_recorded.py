"""Runs that were recorded on GPUs (traces/recorded, made by cuda/record), predicted again from the plans that ran: the same
ops in the same order, the same bytes at every op, the same losses, peaks, savings, and times (docs/08-real-gpu.md has what
the misses come from)."""

import gzip
import json
import lzma
import os
import re
import statistics

import pytest

from conftest import ROOT, sets

RESULTS = {path.parent: json.loads(path.read_text()) for path in sorted(ROOT.glob("traces/recorded/*/*/results.json"))}
RECORDED = [(folder, name) for folder, results in RESULTS.items() for name in results]


def id_of(folder, name):
    return f"{folder.parent.name}-{name}"


EACH = pytest.mark.parametrize("folder, name", RECORDED, ids=[id_of(*setting) for setting in RECORDED])

# Records that miss the bounds of all others.
# Overhead of offload, predicted 4.8 points too high: less than 5.
OVERHEADS_MISSED = {"h200-quad-data-layers-8"}
# At the peak of live memory fewer blocks than predicted wait for their copies: 1.7 % of the saving, or 0.2 % of the peak.
SAVING_MISSED = {"h200-mixture-all", "h100-mixture-all"}
LIVE_MISSED = {"h200-llama-half"}
# Reserved memory, predicted 2.2 % too small.
SEGMENTS_MISSED = {"h200-llama-12288-all"}
# Two GPUs' copies out that were 3.1 % slower than by the machine file, in a last step (it is the one that is traced) 1.5 %
# longer than the run's median, on a host that others use, too.
COPIES_MISSED = {"h200-data-pair-layers-8"}
LARGE_BYTES = 16 << 20

RECOMPUTED = {"llama-recompute": "llama", "torch-recompute": "torch"}


def on_one_gpu(folder):
    return folder.name == "gpus-1"


def machine_of(folder):
    """Runs of several GPUs have links that were measured right before them."""
    now = folder / "machine.yaml"
    return now if now.exists() else folder.parent / "machine.yaml"


def plan_options(folder, name, stem):
    """Options that name the plans of a run: the warm-up's and the steady iterations'."""
    texts = lzma.decompress((folder / f"{name}.plans.xz").read_bytes()).split(b"offsim-plan ")[1:]
    words = []
    for iteration, text in zip(("warmup", "steady"), texts, strict=True):
        path = stem.with_name(f"{stem.name}.{iteration}.plan")
        path.write_bytes(b"offsim-plan " + text)
        words += [f"--{iteration}-plan", path]
    return words


@pytest.fixture(scope="module")
def pair(offsim, tmp_path_factory):
    """(predicted, measured) traces of a recorded setting."""
    made, temporary = {}, tmp_path_factory.mktemp("recorded")

    def of(folder, name):
        if (folder, name) not in made:
            setting = RESULTS[folder][name]
            stem = f"{folder.parent.name}-{folder.name}-{name}"
            predicted, measured = (temporary / f"{stem}-{side}" for side in ("predicted", "measured"))
            measured.write_bytes(gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()))
            offsim("predict", "--machine", machine_of(folder), "--record", predicted,
                   *plan_options(folder, name, temporary / stem), *sets("offload.mode=fixed", *setting["set"]), f"traces/recorded/models/{setting['model']}.yaml", check=0)
            made[folder, name] = predicted, measured, setting
        return made[folder, name]

    return of


@pytest.fixture(scope="module")
def compared(offsim, pair):
    """The result of compare for a recorded setting, and for the one without offload if that was
    recorded."""
    told = {}

    def of(folder, name):
        if (folder, name) not in told:
            predicted, measured, setting = pair(folder, name)
            without = setting["without"]
            words = ["--without", ",".join(map(str, pair(folder, without)[:2]))] if (folder, without) in RECORDED else []
            told[folder, name] = json.loads(offsim("compare", predicted, measured, *words, "--json").stdout)
        return told[folder, name], pair(folder, name)[2]

    return of


@EACH
def test_bytes(compared, folder, name):
    """What is allocated is the same at every op. When a freed block can be used again depends on when copies are done:
    one GPU's are predicted well, those of stages that wait for each other less so."""
    told, _ = compared(folder, name)
    assert told["same_order"] and told["same_bytes"]
    for rank in told["clocked_ranks"]:
        predicted, measured = rank["predicted"], rank["measured"]
        assert predicted["requested_peak_bytes"] == measured["requested_peak_bytes"]
        limit = 0.002 if id_of(folder, name) in LIVE_MISSED else 0.001 if on_one_gpu(folder) else 0.01
        assert abs(predicted["live_peak_bytes"] - measured["live_peak_bytes"]) <= limit * measured["live_peak_bytes"]


@EACH
def test_saving(compared, folder, name):
    """R, measured over simulated: of what is allocated 1; of live memory of one GPU too, where it is worth a ratio."""
    told, _ = compared(folder, name)
    for rank in told["clocked_ranks"]:
        saving, live = rank.get("saving_bytes"), rank.get("live_saving_bytes")
        if saving is not None:
            assert saving["measured"] == saving["simulated"]
        if live is None or not on_one_gpu(folder):
            continue
        if live["simulated"] >= rank["predicted"]["live_peak_bytes"] // 1000:
            limit = 0.02 if id_of(folder, name) in SAVING_MISSED else 0.0005
            assert abs(live["measured"] / live["simulated"] - 1) <= limit


@EACH
def test_segments(compared, folder, name):
    """What the allocator has taken after all steps. While modules are offloaded, it depends on how far the host is ahead."""
    told, setting = compared(folder, name)
    wide = not on_one_gpu(folder) or id_of(folder, name) in SEGMENTS_MISSED
    limit = 0 if not setting["without"] else 0.03 if wide else 0.01
    for rank in told["clocked_ranks"]:
        expected, found = (rank[side]["reserved_peak_bytes"] for side in ("predicted", "measured"))
        assert abs(expected - found) <= limit * found


def plain(folder, name):
    """The setting that trains the same model with nothing offloaded or computed again; None: is not recorded, or this one."""
    without = RESULTS[folder][name]["without"]
    without = RECOMPUTED.get(without or name, without)
    return without if without in RESULTS[folder] else None


PAIRS = [(folder, name) for folder, name in RECORDED if plain(folder, name)]


@pytest.mark.parametrize("folder, name", PAIRS, ids=[id_of(*pair) for pair in PAIRS])
def test_losses(folder, name):
    """Whatever is offloaded or computed again, a model has the same losses, bit by bit, as far as both trained."""
    pairs = list(zip(RESULTS[folder][name]["losses"], RESULTS[folder][plain(folder, name)]["losses"]))
    assert len(pairs) > 10 and all(own == other for own, other in pairs)


@EACH
def test_time(compared, folder, name):
    told, _ = compared(folder, name)
    assert abs(told["step_error_ppm"]) <= 50000
    if "overhead_ppm_predicted" in told:
        limit = 50000 if id_of(folder, name) in OVERHEADS_MISSED else 20000
        assert abs(told["overhead_ppm_predicted"] - told["overhead_ppm_measured"]) <= limit


def copies_of(trace):
    """By rank and op, of what was copied or predicted to be: direction and duration."""
    ops = (json.loads(line) for line in trace.read_text().splitlines()[1:])
    return {(op["rank"], op["op"]): (op["kind"], op["end_ps"] - op["begin_ps"])
            for op in ops if op.get("kind") in ("d2h", "h2d") and int(op["call"].split()[0]) >= LARGE_BYTES}


@EACH
def test_copies(pair, folder, name):
    """While other GPUs copy, and streams wait, copies are no more than 3 % slower than by the machine file."""
    predicted, measured = (copies_of(trace) for trace in pair(folder, name)[:2])
    least = 0.965 if id_of(folder, name) in COPIES_MISSED else 0.97
    assert predicted.keys() <= measured.keys()
    for direction in {kind for kind, _ in predicted.values()}:
        ratios = [ps / measured[op][1] for op, (kind, ps) in predicted.items() if kind == direction]
        assert len(ratios) > 8 and statistics.median(ratios) >= least


SHIPPED = {"h100": "H100-SXM", "h200": "H200-SXM-vm", "h200-quad": "H200-SXM-vm"}


def test_times_with_shipped_machine_files(offsim):
    """As docs/08-real-gpu.md and README.md say."""
    errors = []
    for folder, name in RECORDED:
        setting = RESULTS[folder][name]
        done = offsim("predict", "--machine", SHIPPED[folder.parent.name],
                      *sets("offload.mode=fixed", "software.issued_by=offsim", *setting["set"]), "--json",
                      f"traces/recorded/models/{setting['model']}.yaml", check=0)
        predicted = float(json.loads(done.stdout)["result"]["step_time_s"])
        errors.append(abs(predicted * 1e12 / setting["measured"]["median_step_ps"] - 1))
    median, worst = (f"{100 * error:.0f} %" for error in (statistics.median(errors), max(errors)))
    for page, sentence in (("docs/08-real-gpu.md", "| shipped | {} | {} |"), ("docs/08-real-gpu.md", "Median {}, worst {}:"),
                           ("README.md", "With the shipped machine files the median is {}, the worst {}:")):
        path, expected = ROOT / page, sentence.format(median, worst)
        quoted = re.escape(sentence).replace(r"\{\}", r"[\d.]+ %")
        assert len(re.findall(quoted, path.read_text())) == 1, sentence
        if os.environ.get("BLESS"):
            path.write_text(re.sub(quoted, expected, path.read_text()))
        assert expected in path.read_text(), f"{page}: {expected} (BLESS=1 accepts it)"


def test_median_time(compared):
    assert statistics.median(abs(compared(*setting)[0]["step_error_ppm"]) for setting in RECORDED) <= 10000
