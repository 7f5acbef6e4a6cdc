"""Deterministic algorithms fill what torch.empty allocates: a kernel more before whoever writes it, and the same bits."""
import re

import pytest

EXAMPLES = ["docs/examples/tiny-llama.yaml", "docs/examples/tiny-deepseek.yaml"]
DETERMINISTIC = ("--machine", "H100-SXM", "--set", "deterministic_mode=true")


def ops(plan):
    """(kind or kernel, buffers written, buffers read) of a plan's kernels, collectives and allocations."""
    for line in plan.splitlines():
        words = line.split()
        if not words or words[0] not in ("alloc", "kernel", "collective"):
            continue
        read, _, written = line.partition(" -> ") if words[0] != "alloc" else ("", "", words[2])
        names = lambda text: re.findall(r"%\d+", text.partition(" @ ")[0])
        yield words[2] if words[0] == "kernel" else words[0], names(written), names(read)


@pytest.mark.parametrize("example", EXAMPLES)
def test_fills_come_first(offsim, example):
    """A fill is the first op on a new buffer, and the next op on it writes it."""
    new, filled, fills = set(), set(), 0
    for kind, written, read in ops(offsim("plan", example, *DETERMINISTIC, "--rank", 0).stdout):
        if kind == "alloc":
            new.update(written)
        elif kind == "fill_empty":
            assert new.issuperset(written)
            filled.update(written)
            fills += 1
        else:
            assert not filled.intersection(read)
            filled.difference_update(written)
            new.difference_update(written)
    assert fills > 50 and not filled


@pytest.mark.parametrize("example", EXAMPLES)
def test_same_bits(offsim, example):
    losses = [offsim("run", "--on", "ref", example, *words).stdout.splitlines()[1] for words in (DETERMINISTIC[:2], DETERMINISTIC)]
    assert losses[0] == losses[1]


def test_none_otherwise(offsim):
    assert "fill_empty" not in offsim("plan", EXAMPLES[0], "--machine", "H100-SXM").stdout
