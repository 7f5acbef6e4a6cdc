"""Published step times of Megatron-Bridge (published_steps.jsonl): the rows whose prediction takes a second."""
import pytest

from published import error_percent, name_of, predict, rows

ROWS = {name_of(row): row for row in rows()}

# Percent, a little above today's error of each.
MOST = {
    "25.11 H100 LLAMA3_8B FP8-CS": 5.5,
    "25.11 GB300 DeepSeekV3 w/o MTP BF16": 2,
    "26.02.01 GB300 Kimi_K2 MXFP8": 3,
    "26.02.01 GB300 Qwen3_30B_a3B MXFP8": 12,
    "25.11 GB300 LLAMA3_8B FP8-CS (FP8-MX)": 7,
    "25.11 B200 LLAMA3_8B FP8-CS (FP8-MX)": 2,
    "25.11 GB200 LLAMA3_8B FP8-CS (FP8-MX)": 3,
    "26.02.01 GB300 GPT OSS 120B BF16": 5,
    "26.02 H100 LLAMA3_70B FP8": 2,
}


@pytest.mark.parametrize("name", MOST)
def test_step(name):
    prediction, why = predict(ROWS[name])
    assert why is None
    assert abs(error_percent(ROWS[name], prediction)) <= MOST[name]


def test_rows_are_predicted_or_say_why_not():
    found = rows()
    assert len(found) == 114
    for row in found:
        assert ("args" in row) != ("not_modelled" in row), name_of(row)
