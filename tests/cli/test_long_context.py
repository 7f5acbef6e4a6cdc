"""Sizes of long contexts and large models: predicted; refused only where a rank really has too much."""

import json

import pytest

from conftest import one_error, sets

LAUNCH = ["--megatron-args", "docs/examples/llama3-8b.sh"]
LONG_TOKENS = [65536, 131072, 524288, 1048576]
LLAMA_405B = ["num_layers=126", "hidden_size=16384", "ffn_hidden_size=53248", "num_attention_heads=128",
              "num_query_groups=8", "tensor_model_parallel_size=8", "pipeline_model_parallel_size=16",
              "context_parallel_size=1", "decoder_first_pipeline_num_layers=7", "decoder_last_pipeline_num_layers=7",
              "seq_length=8192", "max_position_embeddings=8192", "world_size=128"]
GPT3_175B = ["num_layers=96", "hidden_size=12288", "ffn_hidden_size=49152", "num_attention_heads=96",
             "group_query_attention=false", "num_query_groups=96", "tensor_model_parallel_size=8",
             "pipeline_model_parallel_size=16", "context_parallel_size=1", "seq_length=2048",
             "max_position_embeddings=2048", "world_size=1024"]


def length(tokens, *more):
    return sets("context_parallel_size=8", "world_size=64", f"seq_length={tokens}",
                f"max_position_embeddings={tokens}", *more)


def predicted(offsim, *words):
    return json.loads(offsim("predict", *LAUNCH, *words, "--json", check=0).stdout)


@pytest.mark.parametrize("tokens", LONG_TOKENS)
def test_long_sequences_are_predicted(offsim, tokens):
    rank = predicted(offsim, *length(tokens, "global_batch_size=4"))["result"]["ranks"][0]
    # the output of layers: one of 2 x 8 parts of the tokens, hidden size 4096, 2 bytes, 16 layers, two at once
    assert rank["live_peak_bytes"] > tokens // 16 * 4096 * 2 * 16


@pytest.mark.parametrize("model, batch", [(LLAMA_405B, 16), (GPT3_175B, 128)])
def test_large_models_are_predicted(offsim, model, batch):
    """With as many micro-batches as stages: the first holds all of them at once."""
    assert predicted(offsim, *sets(*model, f"global_batch_size={batch}"))["result"]["ranks"]


def test_many_micro_batches_pass_the_bounds(offsim):
    """The model alone is resolved: a step of 512 micro-batches takes seconds to simulate."""
    done = offsim("predict", *LAUNCH, *sets(*LLAMA_405B, "global_batch_size=512"), "--print-scenario", check=0)
    assert "global_batch_size: 512" in done.stdout
    done = offsim("predict", "tests/bench/deepseek-v3.yaml", *sets("global_batch_size=8192"), "--print-scenario", check=0)
    assert "global_batch_size: 8192" in done.stdout


def test_written_scores_are_counted(offsim):
    """16 Mi tokens: 8 Mi rows of 16 heads with 16 Mi columns are too much, where a kernel writes them."""
    long = sets("seq_length=16777216", "max_position_embeddings=16777216")
    written = one_error(offsim("predict", *LAUNCH, *long, *sets("attention_backend=unfused"), check=2), 2)
    assert "num_attention_heads (attention_backend writes all scores)" in written
    assert "FLOPs" in one_error(offsim("predict", *LAUNCH, *long, check=2), 2)  # not written, but still attended to
