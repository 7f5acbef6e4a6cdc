"""Transformer Engine has kernels of RMSNorm's backward for some widths; the others take the one for any width."""

import re

import pytest

from conftest import sets

MODEL = ["num_attention_heads=4", "qk_layernorm=true", "transformer_impl=transformer_engine"]


def backward_norms(offsim, *keys):
    text = offsim("plan", "docs/examples/tiny-llama.yaml", *sets(*MODEL, *keys)).stdout
    return set(re.findall(r" (\w+norm_backward) bf16 rows=(\d+) h=(\d+)( general=1)? ", text))


def test_widths_without_a_kernel_of_their_own(offsim):
    assert backward_norms(offsim, "hidden_size=1024", "kv_channels=128") == {
        ("rmsnorm_backward", "32", "1024", ""),
        ("rmsnorm_backward", "128", "128", " general=1"),
        ("rmsnorm_backward", "64", "128", " general=1")}


def test_rows_that_no_block_fills(offsim):
    """Kernels for one width want a multiple of four rows."""
    assert ("rmsnorm_backward", "30", "1024", " general=1") in backward_norms(offsim, "hidden_size=1024", "seq_length=30")


@pytest.mark.parametrize("keys", (["normalization=LayerNorm"], ["transformer_impl=local", "normalization=LayerNorm"]))
def test_layernorm_has_no_such_kernel(offsim, keys):
    found = backward_norms(offsim, "hidden_size=320", *keys)
    assert found and all(kind == "layernorm_backward" and not general for kind, _, _, general in found)
