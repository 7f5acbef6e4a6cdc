"""The copies and waits of `offsim plan` under trl and trl_sync in the order that TRL's own file issued on a stub of torch
(tests/data/trl_offload.json, recorded by tests/peers/trl_offload.py)."""

import json

import pytest

from conftest import ROOT, sets
from saved_tensors import steps_of
from stub_orders import KernelReader

RECORDED = json.loads((ROOT / "tests/data/trl_offload.json").read_text())
EXAMPLE = "docs/examples/hf-layers.yaml"


def name_of(job):
    return "-".join([*job["settings"], f"streams={job['streams']}", f"stash={job['stash']}", f"registered={job['registered']}"])


@pytest.mark.parametrize("job", RECORDED, ids=name_of)
def test_order_is_that_of_trl(offsim, job):
    more = [f"system={'trl' if job['streams'] else 'trl_sync'}", "mode=as_released", f"max_fwd_stash_size={job['stash']}",
            f"trl_params_registered={json.dumps(job['registered'])}"]
    text = offsim("plan", EXAMPLE, *sets(*job["settings"], *more), check=0).stdout
    assert KernelReader(text).events == job["order"]


@pytest.mark.parametrize("job", RECORDED, ids=name_of)
def test_the_step_is_still_the_recorded_one(offsim, job):
    """If not, the order has to be recorded again."""
    text = offsim("plan", EXAMPLE, *sets(*job["settings"], "system=save_on_cpu"), check=0).stdout
    assert {**job, **steps_of(text)} == job
