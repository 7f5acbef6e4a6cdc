"""After the optimizer step Transformer Engine casts main parameters to weights in fp8: its kernel for a row, with a transposed copy."""

import re

import pytest

from conftest import sets

BASE = ["world_size=2", "use_distributed_optimizer=true", "fp8_format=hybrid", "fp8_param_gather=true"]
CAST = re.compile(r"^  kernel +compute +cast_transpose_row bf16 elements=(\d+) (\d+) bytes (%\d+) -> %\d+\{fp8\+(\d+):(\d+)\} (%\d+)$", re.M)


def casts(offsim, *keys):
    text = offsim("plan", "docs/examples/tiny-llama.yaml", *sets(*BASE, *keys)).stdout
    return text, CAST.findall(text)


@pytest.mark.parametrize("keys", (["fp8_recipe=delayed"], ["fp8_recipe=tensorwise"],
                                  ["fp8_recipe=tensorwise", "use_precision_aware_optimizer=true"]))
def test_every_element_of_the_shard_is_cast_once(offsim, keys):
    text, found = casts(offsim, *keys)
    weights = int(re.search(r"param_buffer fp8\[(\d+)\]", text).group(1))
    covered = sorted((int(start), int(start) + int(count)) for _, _, _, start, count, _ in found)
    assert covered[-1][1] == weights and covered[0][0] == weights // 2  # the last rank's half
    assert all(end == start for (_, end), (start, _) in zip(covered, covered[1:]))
    assert all(elements == count and int(moved) == 4 * int(count) for elements, moved, _, _, count, _ in found)


def test_rows_are_temporaries(offsim):
    """All are converted before the first cast; there is one transposed copy at a time."""
    text, found = casts(offsim, "fp8_recipe=delayed")
    step = text[text.rindex("\noptimizer\n"):]
    first = step.index("cast_transpose_row")
    for _, _, row, _, count, transposed in found:
        assert step.index(f"{row} converted_main bf16[1,{count}]") < first
        assert f"cast_transpose_row bf16 elements={count} " in step
        assert re.search(rf"{transposed}\n  free +compute +{transposed}\n", step)
        assert len(re.findall(rf"^  free +compute +{row}$", step, re.M)) == 1


@pytest.mark.parametrize("keys", (["fp8_recipe=blockwise"], ["fp8_recipe=mxfp8"],
                                  ["fp8_recipe=delayed", "use_precision_aware_optimizer=true"],
                                  ["fp8_recipe=tensorwise", "use_precision_aware_optimizer=true", "main_params_dtype=fp16"],
                                  ["fp8_recipe=delayed", "fp8_param_gather=false"]))
def test_others_take_another_way(offsim, keys):
    assert casts(offsim, *keys)[1] == []
