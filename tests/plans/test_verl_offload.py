"""The copies and waits of `offsim plan` under verl in the order that verl's own file issued on a stub of torch
(tests/data/verl_offload.json, recorded by tests/peers/verl_offload.py)."""

import json

import pytest

from conftest import ROOT, sets
from saved_tensors import steps_of
from stub_orders import LayerReader

RECORDED = json.loads((ROOT / "tests/data/verl_offload.json").read_text())
FSDP_WAITS = ["sync", "compute"]  # limit_all_gathers of FSDP's first version
EXAMPLE = "tests/data/fsdp-8-layers.yaml"


def name_of(job):
    return "-".join(job["settings"])


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp2"])
@pytest.mark.parametrize("job", RECORDED, ids=name_of)
def test_order_is_that_of_verl(offsim, job, strategy):
    more = ["system=verl", "mode=as_released", f"parallel.fsdp={strategy}"]
    text = offsim("plan", EXAMPLE, *sets(*job["settings"], *more), check=0).stdout
    assert [event for event in LayerReader(text).events if event != FSDP_WAITS] == job["order"]


@pytest.mark.parametrize("job", RECORDED, ids=name_of)
def test_the_step_is_still_the_recorded_one(offsim, job):
    """If not, the order has to be recorded again."""
    text = offsim("plan", EXAMPLE, *sets(*job["settings"], "system=save_on_cpu"), check=0).stdout
    assert {**job, **steps_of(text)} == job
