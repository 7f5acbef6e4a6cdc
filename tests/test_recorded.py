"""Runs that were recorded on GPUs (traces/recorded, made by cuda/record), predicted again: the same ops in the same order,
the same bytes at every op, the peak of live memory, and the saving that was measured."""

import gzip
import json

import pytest

from conftest import ROOT, sets

FOLDERS = sorted(path.parent for path in ROOT.glob("traces/recorded/*/results.json"))
RECORDED = [(folder, name) for folder in FOLDERS for name in json.loads((folder / "results.json").read_text())]


@pytest.fixture(scope="module")
def pair(offsim, tmp_path_factory):
    """(predicted, measured) traces of a recorded setting."""
    made, temporary = {}, tmp_path_factory.mktemp("recorded")

    def of(folder, name):
        if (folder, name) not in made:
            setting = json.loads((folder / "results.json").read_text())[name]
            predicted, measured = (temporary / f"{folder.name}-{name}-{side}" for side in ("predicted", "measured"))
            measured.write_bytes(gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()))
            offsim("predict", "--machine", folder / "machine.yaml", "--record", predicted, *sets(*setting["set"]),
                   f"traces/recorded/models/{setting['model']}.yaml", check=0)
            made[folder, name] = predicted, measured, setting
        return made[folder, name]

    return of


@pytest.mark.parametrize("folder, name", RECORDED, ids=[f"{folder.name}-{name}" for folder, name in RECORDED])
def test_bytes(offsim, pair, folder, name):
    predicted, measured, setting = pair(folder, name)
    words, without = ["--max-peak-error", 0.1], setting["without"]
    if (folder, without) in RECORDED:
        words += ["--without", ",".join(map(str, pair(folder, without)[:2]))]
    told = json.loads(offsim("compare", predicted, measured, *words, "--json", check=0).stdout)
    assert told["same_order"] and told["same_bytes"]
    for rank in told["clocked_ranks"]:
        assert rank["predicted"]["requested_peak_bytes"] == rank["measured"]["requested_peak_bytes"]
        saving = rank.get("saving_bytes")
        worth_a_ratio = rank["predicted"]["live_peak_bytes"] // 1000
        if saving is not None and saving["simulated"] >= worth_a_ratio:
            assert 0.9995 <= saving["measured"] / saving["simulated"] <= 1.0005


@pytest.mark.parametrize("folder, name", RECORDED, ids=[f"{folder.name}-{name}" for folder, name in RECORDED])
def test_segments(offsim, pair, folder, name):
    """What the allocator has taken after all steps. While modules are offloaded, it depends on how far the host is ahead."""
    predicted, measured, setting = pair(folder, name)
    told = json.loads(offsim("compare", predicted, measured, "--json").stdout)
    for rank in told["clocked_ranks"]:
        expected, found = (rank[side]["reserved_peak_bytes"] for side in ("predicted", "measured"))
        assert abs(expected - found) <= (0.005 * found if setting["without"] else 0)
