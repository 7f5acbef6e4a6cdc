"""Muon's step in the plan: the products of its Newton-Schulz iterations by their closed form, and what tensor parallel
ranks exchange for them."""

import re

import pytest

from conftest import ROOT, sets

TINY = ROOT / "docs/examples/tiny-llama.yaml"
HIDDEN, FFN, HEADS, GROUPS = 64, 128, 4, 2
HEAD = HIDDEN // HEADS
LAYERS = 4
PRODUCT = re.compile(r"kernel +compute +muon_product (\w+) m=(\d+) n=(\d+) k=(\d+) ")


def step(offsim, *settings):
    options = sets("optimizer=muon", "system=none", *settings)
    text = offsim("plan", *options, TINY, check=0).stdout
    assert "0 errors" in offsim("check", "--plan", "-", stdin=text, check=0).stdout
    return text[text.index("\noptimizer\n"):]


def products(text):
    return [(kind, *map(int, sizes)) for kind, *sizes in PRODUCT.findall(text)]


def iterations(matrices, steps=5, kind="bf16"):
    """A = X X', B = b A + c A A, X = a X + B X, with X's short side first."""
    made = []
    for sides in matrices:
        short, long = sorted(sides)
        made += [(kind, short, short, long), (kind, short, short, short), (kind, short, long, short)] * steps
    return sorted(made * LAYERS)


QKV = [(HIDDEN, HIDDEN), (GROUPS * HEAD, HIDDEN), (GROUPS * HEAD, HIDDEN)]
REST = [(HIDDEN, HIDDEN), (2 * FFN, HIDDEN), (HIDDEN, FFN)]


@pytest.mark.parametrize("settings, expected", [
    ([], iterations(QKV + REST)),
    (["muon_num_ns_steps=2"], iterations(QKV + REST, steps=2)),
    (["muon_fp32_matmul_prec=highest"], iterations(QKV + REST, kind="fp32")),
    (["muon_split_qkv=false"], iterations([(HIDDEN + 2 * GROUPS * HEAD, HIDDEN)] + REST)),
])
def test_products(offsim, settings, expected):
    assert sorted(products(step(offsim, *settings))) == expected


def halves():
    """A rank's part: Megatron splits the rows of projections of the residual, the columns of those back to it."""
    rows = [(a // 2, b) for a, b in QKV + [REST[1]]]
    return rows + [(REST[0][0], REST[0][1] // 2), (REST[2][0], REST[2][1] // 2)]


TP = ["tensor_model_parallel_size=2", "world_size=2"]
MATRICES = LAYERS * len(QKV + REST)


def test_blockwise(offsim):
    text = step(offsim, *TP, "muon_tp_mode=blockwise")
    assert sorted(products(text)) == iterations(halves())
    assert "collective" not in text


def test_duplicated(offsim):
    """Each rank makes the whole matrices orthogonal, from the ranks' parts in fp32."""
    text = step(offsim, *TP)
    assert sorted(products(text)) == iterations(QKV + REST)
    gathers = re.findall(r"collective compute +all_gather fp32 tp of 2 stride 1 (\d+) bytes", text)
    assert sorted(map(int, gathers)) == sorted(LAYERS * [4 * a * b // 2 for a, b in QKV + REST])


def test_distributed(offsim):
    """The ranks' part is the long side; they sum the norm, and in each iteration A, in bf16."""
    text = step(offsim, *TP, "muon_tp_mode=distributed")
    sums = re.findall(r"collective compute +all_reduce (\w+) tp of 2 stride 1 (\d+) bytes", text)
    assert sums.count(("fp32", "4")) == MATRICES
    assert len(sums) == MATRICES * (1 + 5)
    assert sums.count(("bf16", str(2 * HIDDEN * HIDDEN))) == MATRICES * 5


@pytest.mark.parametrize("day, gathers", [("2026-08-20", False), ("2026-08-21", True)])
def test_default_changed(offsim, day, gathers):
    assert ("all_gather" in step(offsim, *TP, f"megatron_day={day}")) == gathers
