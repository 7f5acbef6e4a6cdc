"""The copies and waits of `offsim plan` under Axolotl's engines for checkpoints in the order that Axolotl's own files issued on a stub
of torch (tests/data/axolotl_checkpoints.json, recorded by tests/peers/axolotl_checkpoints.py)."""

import json

import pytest

from conftest import ROOT, sets
from stub_orders import LayerReader

RECORDED = json.loads((ROOT / "tests/data/axolotl_checkpoints.json").read_text())


def name_of(job):
    return "-".join(str(value) for key, value in job.items() if key != "order")


@pytest.mark.parametrize("job", RECORDED, ids=name_of)
def test_order_is_that_of_axolotl(offsim, job):
    more = [f"system={job['system']}", f"num_layers={job['layers']}", f"global_batch_size={job['micro_batches']}"]
    if job["system"] == "hidden_states_reentrant":
        more.append("use_reentrant=true")
    if job["system"] == "selective_checkpointing":
        more += [f"selective_checkpointing_hidden_states={json.dumps(job['inputs'])}"]
    text = offsim("plan", "docs/examples/hf-checkpoints.yaml", *sets(*more), check=0).stdout
    assert LayerReader(text).events == job["order"]
