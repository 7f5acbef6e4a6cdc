"""What only a machine with GPUs runs (cuda/record, tests/gpu/same_bits.py, tests/peers/near_limit.py): every setting in their
tables is one that offsim takes."""

import importlib.machinery
import importlib.util

import pytest

from conftest import ROOT, sets


def program(path):
    loader = importlib.machinery.SourceFileLoader(path.replace("/", "_"), str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


RECORD, SAME_BITS, NEAR_LIMIT = map(program, ("cuda/record", "tests/gpu/same_bits.py", "tests/peers/near_limit.py"))


def settings():
    """Name, scenario, settings."""
    for name, _, model, _, of in RECORD.SETTINGS:
        yield f"record-{name}", model, of
    for group, name, of, _ in SAME_BITS.SETTINGS:
        scenario, common = SAME_BITS.MODELS[group]
        yield f"same_bits-{group}-{name}", scenario, [*common, *of]
    for name, (scenario, of) in NEAR_LIMIT.RUNS.items():
        yield f"near_limit-{name}", scenario, of


@pytest.mark.parametrize("scenario, of", [pytest.param(*rest, id=name.replace(" ", "_")) for name, *rest in settings()])
def test_settings_are_taken(offsim, scenario, of):
    offsim("predict", *sets(*of), f"traces/recorded/models/{scenario}.yaml", check=0)


def test_records_have_what_they_are_held_against():
    """cuda/record: the setting without offload is in the table, for as many GPUs."""
    table = {(name, gpus) for name, gpus, *_ in RECORD.SETTINGS}
    assert all(without == "" or (without, gpus) in table for _, gpus, _, without, _ in RECORD.SETTINGS)
