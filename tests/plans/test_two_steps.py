"""Ten plans that are safe alone and not when the next step follows, each beside its fix; and plans of which a text
has only some ranks."""

import json

import pytest

import oracle
from conftest import ROOT

FOLDER = ROOT / "tests/data/two_steps"
# By file: (kind, op of the step before, op of the next step).
TABLE = {
    "block_without_mark": ("block_reused", "d2h", "kernel"),
    "gradient_reduction": ("write_before_write", "collective", "kernel"),
    "layer_on_its_way_in": ("read_before_write", "h2d", "d2h"),
    "pinned_block": ("write_before_read", "h2d", "d2h"),
    "pool_of_pinned_buffers": ("host_buffer_reused", "h2d", "d2h"),
    "prefetched_block": ("block_reused", "kernel", "h2d"),
    "send_buffer": ("write_before_read", "send", "kernel"),
    "staging_buffer": ("write_before_read", "disk_write", "d2h"),
    "static_input": ("write_before_write", "kernel", "h2d"),
    "weight_before_optimizer": ("read_before_write", "kernel", "d2h"),
}


def check(offsim, *arguments, stdin=""):
    done = offsim("check", "--json", *arguments, stdin=stdin)
    assert done.status in (0, 1), done.stderr
    return json.loads(done.stdout)


def errors(found):
    return [finding for finding in found["findings"] if finding["severity"] == "error"]


def one_step(path):
    """The plan of a step that no step follows: it builds the model."""
    lines = path.read_text().splitlines()
    made = []
    for line in lines:
        if line.startswith("forward") or line.startswith("backward m0") and "setup" not in made:
            made.append("setup")
        made.append(line)
    assert "setup" in made
    return "\n".join(made) + "\n"


def test_the_table_has_every_file():
    assert {path.name for path in FOLDER.iterdir()} == {name + end for name in TABLE for end in (".plan", ".fixed.plan")}


@pytest.mark.parametrize("name", TABLE)
def test_a_race_with_the_next_step(offsim, name):
    path = FOLDER / f"{name}.plan"
    found = errors(check(offsim, "--plan", path))
    assert found and all(finding["places"][0]["step_before"] for finding in found)
    assert any((finding["kind"], *(op["text"].split()[0] for op in finding["ops"])) == TABLE[name] for finding in found)
    assert oracle.conflicts(oracle.read(path.read_text())) != []
    assert errors(check(offsim, "--plan", "-", stdin=one_step(path))) == []
    assert oracle.conflicts(oracle.read(one_step(path))) == []


@pytest.mark.parametrize("name", TABLE)
def test_its_fix(offsim, name):
    path = FOLDER / f"{name}.fixed.plan"
    assert check(offsim, "--plan", path)["safe"]
    assert oracle.conflicts(oracle.read(path.read_text())) == []


def test_places_are_lines_of_the_file(offsim):
    path = FOLDER / "pinned_block.plan"
    (finding,) = errors(check(offsim, "--plan", path))
    lines = path.read_text().splitlines()
    for place, op in zip(finding["places"], finding["ops"]):
        assert place["file"] == str(path) and lines[place["line"] - 1].split() == op["text"].split()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_several_is_no_deadlock(offsim, rank):
    scenario = ["docs/examples/pr1752.yaml", "--set", "offload.mode=fixed"]
    text = offsim("plan", "--rank", rank, *scenario, check=0).stdout
    found = check(offsim, "--plan", "-", stdin=text)
    assert found["safe"] and found["assumed"] == text.count(" msg ")
    shown = offsim("check", "--plan", "-", stdin=text, check=0).stdout
    assert f"assumed: ranks that the plan does not have meet {found['assumed']} messages" in shown
    assert check(offsim, *scenario)["assumed"] == 0


DEADLOCK = """offsim-plan 1
ranks 2

rank 0
  resident   compute  %0 gradient fp32[1024] 4096 bytes gradient
  collective comm     all_reduce dp of 2 stride 1 4096 bytes %0 -> %0
  send       comm     msg 0 to rank 1 4096 bytes %0

rank 1
  resident   compute  %0 gradient fp32[1024] 4096 bytes gradient
  recv       comm     msg 0 from rank 0 4096 bytes -> %0
  collective comm     all_reduce dp of 2 stride 1 4096 bytes %0 -> %0
"""


def test_a_rendezvous_in_a_cycle(offsim):
    (finding,) = errors(check(offsim, "--plan", "-", stdin=DEADLOCK))
    assert finding["kind"] == "deadlock"
    assert [(place["rank"], place["line"]) for place in finding["places"]] == [(0, 6), (1, 11)]
    shown = offsim("check", "--plan", "-", stdin=DEADLOCK, check=1).stdout
    assert "  cycle    rank 0 op 0 (-:6):  collective" in shown and "  for      rank 1 op 0 (-:11):  recv" in shown
    assert errors(check(offsim, "--plan", "-", stdin=DEADLOCK.replace("ranks 2", "ranks 2 of 4"))) == []


def test_a_group_that_the_plan_does_not_have_is_assumed(offsim):
    text = DEADLOCK.replace("dp of 2", "dp of 8")
    found = check(offsim, "--plan", "-", stdin=text)
    assert found["safe"] and found["assumed"] == 2
