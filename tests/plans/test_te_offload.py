"""The copies and waits of `offsim plan` under te_v1 and te_v2 in the order that Transformer Engine's own files issued on a stub of
torch (tests/data/te_offload.json, recorded by tests/peers/te_offload.py)."""

import json
import re

import pytest

from conftest import ROOT, sets
from stub_orders import LayerReader

RECORDED = json.loads((ROOT / "tests/data/te_offload.json").read_text())


class Reader(LayerReader):
    """Compute's point: the layers begun, and for version 2 the tensors made that leave."""

    def __init__(self, text, version):
        self.version, self.made = version, set()
        super().__init__(text)

    def kernel(self, stream, rest):
        super().kernel(stream, rest)
        self.made.update(re.findall(r"%\d+", rest.rpartition("->")[2]))

    def point(self):
        return [self.begun, len(self.made & set(self.sources)) if self.version == 2 else 0]


def settings_of(job):
    wanted = [f"system=te_v{job['version']}", f"num_layers={job['layers']}", f"global_batch_size={job['micro_batches']}"]
    if isinstance(job["offloaded"], list):
        return wanted + ["cpu_offloading_manual_synchronization=true", f"cpu_offloading_layers={job['offloaded']}",
                         f"cpu_offloading_release_after={job['released']}", f"cpu_offloading_reload_ahead={job['ahead']}"]
    more = ["cpu_offloading_double_buffering=true", "mode=as_released"] if job.get("double") else []
    return wanted + [f"cpu_offloading_num_layers={job['offloaded']}"] + more


def name_of(job):
    return "-".join(str(value) for key, value in job.items() if key != "order")


@pytest.mark.parametrize("job", RECORDED, ids=name_of)
def test_order_is_that_of_transformer_engine(offsim, job):
    example = "te-manual.yaml" if isinstance(job["offloaded"], list) else "te-layers.yaml"
    text = offsim("plan", f"docs/examples/{example}", *sets(*settings_of(job)), check=0).stdout
    assert Reader(text, job["version"]).events == job["order"]
