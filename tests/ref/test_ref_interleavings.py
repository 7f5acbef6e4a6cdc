"""The verifier and its dynamic twin: `offsim check` says from the plan alone whether an order of its ops can go
wrong; `offsim run --on ref --plan` runs orders that seeds draw, until one does.

Of every plan that is unsafe a bad order is found, and all orders of every safe plan agree; where data cannot
show what the verifier finds, a function below says why.
"""

import json

import pytest

import test_known_bugs
import test_mutants
import test_random_plans
from conftest import ROOT, sets

SEEDS = 60
MUTANT_STRIDE = 17  # one mutant in this many; build/test --all runs all of them


def data_has_left(finding):
    """A message has been sent when the other side has it: what that side makes possible comes later."""
    return finding["ops"][0]["text"].startswith("send ")


def nobody_reads(finding):
    """A copy lands late in a page-locked buffer that was given back unread, and is overwritten before the end:
    only chance writes such plans."""
    return finding["kind"] == "host_buffer_reused"


def is_in_one_step(finding):
    """A run is one step, and gives contents to blocks that the plan reads and never writes."""
    reads_block = finding["kind"] == "never_written" and not finding["ops"][-1]["text"].startswith(("h2d", "disk_write"))
    return not reads_block and not any(place["step_before"] for place in finding["places"])


def errors(offsim, text):
    """What is wrong in some order; a leak is wrong in all."""
    done = offsim("check", "--plan", "-", "--json", stdin=text)
    assert done.status in (0, 1), done.stderr
    return [finding for finding in json.loads(done.stdout)["findings"]
            if finding["severity"] == "error" and finding["kind"] != "leak" and is_in_one_step(finding)]


def shows(offsim, text, seeds):
    """Whether one of the orders goes wrong."""
    done = offsim("run", "--on", "ref", "--interleavings", seeds, "--plan", "-", "--json", stdin=text)
    assert done.status in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["agree"] == (done.status == 0) and (found["agree"] or found["finding"])
    if "seed" in found:
        again = offsim("run", "--on", "ref", "--interleave", found["seed"], "--plan", "-", stdin=text, check=1)
        assert found["finding"] in again.stderr
    return not found["agree"]


class Verdicts:
    """What the two say of many plans. `reason`: why data may not show a finding."""

    def __init__(self, offsim, reason):
        self.offsim, self.reason, self.plans, self.explained, self.wrong = offsim, reason, 0, 0, []

    def add(self, name, text, seeds=SEEDS):
        self.plans += 1
        found, shown = errors(self.offsim, text), shows(self.offsim, text, seeds)
        if bool(found) == shown:
            return
        if found and all(map(self.reason, found)):
            self.explained += 1
        else:
            self.wrong.append(f"{name}: errors {[f['kind'] for f in found]}, shown {shown}")


@pytest.mark.parametrize("name", test_known_bugs.PLANS)
def test_known_plans(offsim, name):
    for end in (".plan", ".fixed.plan"):
        text = (test_known_bugs.FOLDER / (name + end)).read_text()
        assert shows(offsim, text, SEEDS) == bool(errors(offsim, text))


@pytest.mark.parametrize("name", test_known_bugs.SCENARIOS)
def test_known_scenarios(offsim, name):
    iteration, path = test_known_bugs.SCENARIOS[name][0], test_known_bugs.FOLDER / f"{name}.yaml"
    for options, bad in (([], True), (["--set", "mode=fixed"], False)):
        text = offsim("plan", "--iteration", iteration, *options, path, check=0).stdout
        assert shows(offsim, text, SEEDS) == bad


# The same code on a model small enough for arithmetic, all of whose tensors move.
TINY = sets("hidden_size=64", "ffn_hidden_size=128", "num_attention_heads=4", "vocab_size=256", "seq_length=16",
            "offload.min_offloaded_tensor_size=0")
FOR_HF = sets("optimizer=adamw_torch")  # the scenarios say nothing of a step; ref makes one


@pytest.mark.parametrize("name", test_known_bugs.SCENARIOS)
def test_known_scenarios_with_numbers(offsim, name):
    path = test_known_bugs.FOLDER / f"{name}.yaml"
    options = TINY + (FOR_HF if "implementation: hf" in path.read_text() else [])
    run = ["run", "--on", "ref", "--steps", 2, "--interleavings", 8, *options]
    assert " reads element " in offsim(*run, path, check=1).stderr
    offsim(*run, "--set", "mode=fixed", path, check=0)


def test_safe_plans_agree(offsim, request):
    seeds = 1000 if request.config.getoption("--all-configurations") else 60
    for name, text in test_mutants.plans(offsim):
        if not errors(offsim, text):
            assert not shows(offsim, text, seeds), name


def test_mutants_agree(offsim, request):
    stride = 1 if request.config.getoption("--all-configurations") else MUTANT_STRIDE
    verdicts, number = Verdicts(offsim, data_has_left), 0
    for name, text in test_mutants.plans(offsim):
        for line, mark, mutant in test_mutants.mutants(text.splitlines()):
            number += 1
            if number % stride == 0:
                verdicts.add(f"{name}: without line {line + 1} {mark or ''}", "\n".join(mutant) + "\n")
    assert not verdicts.wrong, "\n".join(verdicts.wrong[:20])
    assert verdicts.explained <= 2


@pytest.mark.parametrize("length", [10, 24, 60])
def test_random_plans_agree(offsim, request, length):
    count = 200 if request.config.getoption("--all-configurations") else 40
    verdicts = Verdicts(offsim, nobody_reads)
    for seed in range(count):
        text = test_random_plans.Writer(f"interleaved {length}.{seed}", length).text()
        verdicts.add(f"{length}.{seed}\n{text}", text)
    assert not verdicts.wrong, verdicts.wrong[0]
    assert verdicts.explained <= count // 40


HALVES = """offsim-plan 1
ranks 1
streams one two

rank 0
  resident   one      %0 gradients bf16[1024] 2048 bytes gradient
  kernel     one      elementwise bf16 elements=512 2048 bytes %0{bf16+0:512} -> %0{bf16+0:512}
  kernel     two      elementwise bf16 elements=512 2048 bytes %0{bf16+FIRST:512} -> %0{bf16+FIRST:512}
"""


@pytest.mark.parametrize("first", [512, 511, 0])
def test_parts_of_a_buffer(offsim, first):
    """Two streams may write two parts of a buffer in any order, unless the parts have an element in common."""
    text = HALVES.replace("FIRST", str(first))
    assert shows(offsim, text, SEEDS) == bool(errors(offsim, text)) == (first < 512)


def test_a_seed_is_an_order(offsim):
    """The same seed finds the same; the message names the first that fails."""
    path = ROOT / "tests/known_bugs/megatron-host-pool.plan"
    many = [offsim("run", "--on", "ref", "--interleavings", SEEDS, "--plan", path, check=1) for _ in range(2)]
    assert many[0].stderr == many[1].stderr and "--interleave" in many[0].stderr
