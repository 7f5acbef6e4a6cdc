"""Attention by `offsim run --on ref`: what runs the same arithmetic has the same bits, and other ways to compute the
same are near it (1e-5 of the largest gradient), in fp32."""

import json

import pytest

from conftest import one_error, sets

LLAMA = ["bf16=false", "num_layers=1", "seq_length=16", "micro_batch_size=2"]
LATENT = [*LLAMA, "group_query_attention=false", "num_query_groups=4", "multi_latent_attention=true", "q_lora_rank=16",
          "kv_lora_rank=16", "qk_head_dim=12", "qk_pos_emb_head_dim=8", "v_head_dim=8", "qk_layernorm=true"]
# One projection, of which query, key and value are views; positions are learned.
GPT = [*LLAMA, "num_query_groups=4", "position_embedding_type=learned_absolute", "max_position_embeddings=16"]
MODELS = {"llama": LLAMA, "latent": LATENT, "gpt": GPT}
TOLERANCE = 1e-5


def backend(name):
    return [f"attention_backend={name}"]


def ranks(kind):
    return ["context_parallel_size=2", "world_size=2", f"cp_comm_type={kind}"]


RECOMPUTED = ["recompute_granularity=selective", "recompute_modules=core_attn"]
DROPOUT = ["attention_dropout=0.2"]
WINDOW = ["window_size=4,0"]
SAME = {
    "layouts": (backend("fused"), backend("flash")),
    "rotation in parts": (backend("fused"), [*backend("fused"), "apply_rope_fusion=false"]),
    "recomputation": ([*backend("flash"), *DROPOUT], [*backend("flash"), *DROPOUT, *RECOMPUTED]),
    "unfused recomputation": ([*backend("unfused"), *DROPOUT], [*backend("unfused"), *DROPOUT, *RECOMPUTED]),
    "windows in layouts": ([*backend("fused"), *WINDOW], [*backend("flash"), *WINDOW]),
    "a window and recomputation": ([*backend("flash"), *WINDOW, *DROPOUT], [*backend("flash"), *WINDOW, *DROPOUT, *RECOMPUTED]),
    "a window that hides nothing": (backend("fused"), [*backend("fused"), "window_size=15,0"]),
    "Megatron's and transformers' window": ([*backend("fused"), *WINDOW], [*backend("fused"), "sliding_window=5"]),
    "ring and gather": ([*backend("fused"), *ranks("p2p")], [*backend("fused"), *ranks("all_gather")]),
}
NEAR = {
    "products and softmax": (backend("fused"), backend("unfused")),
    "dropout": ([*backend("fused"), *DROPOUT], [*backend("unfused"), *DROPOUT]),
    "dropout of heads": ([*backend("unfused"), *DROPOUT],
                         [*backend("unfused"), *DROPOUT, "tensor_model_parallel_size=2", "sequence_parallel=true",
                          "world_size=2"]),
    "Megatron's own": (backend("flash"), ["transformer_impl=local"]),
    "ranks by keys": (backend("fused"), [*backend("fused"), *ranks("all_gather")]),
    "a window of ranks by keys": ([*backend("fused"), *WINDOW], [*backend("fused"), *WINDOW, *ranks("all_gather")]),
    "a window of ranks by heads": ([*backend("flash"), *WINDOW], [*backend("flash"), *WINDOW, *ranks("a2a")]),
    "ranks by heads": (backend("flash"), [*backend("flash"), *ranks("a2a")]),
}
PADDED = ["padded_vocab_size=256"]


def run(offsim, settings, *options):
    return offsim("run", "--on", "ref", "--json", *options, *sets(*PADDED, *settings), "docs/examples/tiny-llama.yaml",
                  check=0)


def gradients(offsim, path, settings):
    run(offsim, settings, "--steps", 1, "--dump", path)
    rows = map(json.loads, path.read_text().splitlines())
    return {row["name"]: [float.fromhex(value) for value in row["values"]] for row in rows if row["kind"] == "gradient"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", SAME, ids=[name.replace(" ", "_") for name in SAME])
def test_same_bits(offsim, model, case):
    one, other = (json.loads(run(offsim, [*MODELS[model], *settings], "--steps", 2).stdout)["steps"]
                  for settings in SAME[case])
    assert len(one) == 2 and one == other


def norm_of(name):
    """Transformer Engine has the norm of a layer's input inside the projection, Megatron has it alone."""
    return name.replace("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight").replace(
        "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", NEAR, ids=[name.replace(" ", "_") for name in NEAR])
def test_near(offsim, tmp_path, model, case):
    one, other = (gradients(offsim, tmp_path / str(number), [*MODELS[model], *settings])
                  for number, settings in enumerate(NEAR[case]))
    other = {norm_of(name): values for name, values in other.items()}
    assert one
    for name, values in one.items():
        largest = max(map(abs, values))
        apart = max(abs(a - b) for a, b in zip(values, other[norm_of(name)], strict=True))
        assert apart <= TOLERANCE * max(largest, 1e-30), name


@pytest.mark.parametrize("settings,what", [
    (["tensor_model_parallel_size=4", "world_size=4"], "fewer key/value heads than tensor parallel ranks"),
    ([*ranks("p2p"), *backend("unfused")], "context parallelism with unfused attention"),
    ([*WINDOW, *backend("unfused")], "a sliding window with unfused attention"),
    ([*LATENT, "tensor_model_parallel_size=2", "world_size=2"],
     "latent attention over tensor parallel ranks without sequence_parallel"),
])
def test_refuses(offsim, settings, what):
    done = offsim("run", "--on", "ref", *sets(*settings), "docs/examples/tiny-llama.yaml")
    assert f"does not run {what}" in one_error(done, 2)
