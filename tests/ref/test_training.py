"""A small DeepSeek-V3 (four stages, two expert parallel ranks, seven modules offloaded) learns from a text: it begins
at the entropy of knowing nothing, and ends below that of the text's letters one by one."""

import collections
import json
import math

import pytest

from conftest import ROOT

STEPS = 140
BYTES = 256
LAST = 20  # steps whose mean counts


def entropy(text):
    counts = collections.Counter(text)
    return -sum(n / len(text) * math.log(n / len(text)) for n in counts.values())


@pytest.fixture
def losses(offsim, tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"".join(path.read_bytes() for path in sorted(ROOT.glob("docs/0*.md"))))
    done = offsim("run", "--on", "ref", "--steps", STEPS, "--data", text, "--json", "docs/examples/tiny-deepseek.yaml",
                  check=0)
    return [step["loss"] for step in json.loads(done.stdout)["steps"]], entropy(text.read_bytes())


def test_it_learns(losses):
    found, letters = losses
    assert abs(found[0] - math.log(BYTES)) < 0.1
    end = sum(found[-LAST:]) / LAST
    assert end < letters, f"{end} nats a byte; the text's bytes one by one have {letters}"
