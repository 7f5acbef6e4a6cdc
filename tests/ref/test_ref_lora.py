"""Low-rank adapters, 4-bit weights and Liger's kernels with real arithmetic: what is fused gives the bits
of its parts, and offload changes none of them."""

import json

import pytest

from conftest import sets

BASE = ("implementation=hf", "num_layers=2", "hidden_size=32", "ffn_hidden_size=48", "num_attention_heads=4",
        "group_query_attention=true", "num_query_groups=2", "normalization=RMSNorm", "swiglu=true",
        "add_bias_linear=false", "position_embedding_type=rope", "hidden_dropout=0.0", "attention_dropout=0.0",
        "untie_embeddings_and_output_weights=true", "vocab_size=256", "micro_batch_size=2",
        "global_batch_size=4", "seq_length=16", "world_size=1", "lora_alpha=12")
FUSED = ("lora_qkv_kernel=true", "lora_o_kernel=true", "lora_mlp_kernel=true")
LIGER = ("liger_glu_activation=true", "liger_fused_linear_cross_entropy=true")
LORA = ("adapter=lora",)
TOLERANCE = 1e-4  # after one step of AdamW, which makes every difference as large as its gradient
QLORA = ("adapter=qlora",)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenario") / "empty.yaml"
    path.write_text("machine: {name: ideal}\n")
    return path


@pytest.fixture(scope="module")
def run(offsim, scenario):
    def run(*settings, options=()):
        done = offsim("run", "--on", "ref", "--json", *options, scenario, *sets(*BASE, *settings), check=0)
        return json.loads(done.stdout)
    return run


@pytest.fixture
def gradients(run, tmp_path):
    """Of the second step: in the first those of A are 0, as B is."""
    def gradients(*settings):
        dump = tmp_path / "dump"
        run(*settings, options=("--steps", 2, "--dump", dump))
        tensors = map(json.loads, dump.read_text().splitlines())
        return {t["name"]: [float.fromhex(x) for x in t["values"]] for t in tensors if t["kind"] == "gradient"}
    return gradients


def assert_close(found, expected):
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        largest = max(map(abs, values))
        worst = max(abs(a - b) for a, b in zip(found[name], values))
        assert largest > 0 and worst <= TOLERANCE * largest, f"{name}: off by {worst}, largest {largest}"


@pytest.mark.parametrize("adapter", [LORA, QLORA, (*LORA, "add_qkv_bias=true")], ids=["lora", "qlora", "biased"])
def test_fused_adapters(gradients, adapter):
    assert_close(gradients(*adapter, *FUSED), gradients(*adapter))


@pytest.mark.parametrize("settings", [(), LORA, ("untie_embeddings_and_output_weights=false",)],
                         ids=["plain", "frozen", "tied"])
def test_liger(gradients, settings):
    assert_close(gradients(*settings, *LIGER), gradients(*settings))


def test_base_is_quantised(run):
    """To 4 bits: the loss is another one, but near."""
    exact, rounded = (run(*adapter, options=("--steps", 1))["steps"][0]["loss"] for adapter in (LORA, QLORA))
    assert exact != rounded and abs(exact - rounded) < 0.05


FULL = ("recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1")
SYSTEMS = {
    "save_on_cpu": ("system=save_on_cpu",),
    "trl": ("system=trl",),
    "hidden_states": ("system=hidden_states", *FULL),
    "layer_offloading": ("system=layer_offloading", *FULL),
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("adapter", [LORA, QLORA], ids=["lora", "qlora"])
def test_offload_changes_no_bit(run, adapter, system):
    settings = ("bf16=true", *adapter, *FUSED, *LIGER, "lora_dropout=0.1")
    plain = run(*settings, options=("--steps", 3))["steps"]
    assert run(*settings, *SYSTEMS[system], options=("--steps", 3))["steps"] == plain
