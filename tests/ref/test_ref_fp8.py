"""offsim run --on ref in fp8: offloading and recomputation change no bit, with any recipe and layout."""

import functools
import json

import pytest

import conftest

MODEL = """
model:
  num_layers: 2
  hidden_size: 64
  ffn_hidden_size: 128
  num_attention_heads: 4
  group_query_attention: true
  num_query_groups: 2
  normalization: RMSNorm
  position_embedding_type: rope
  swiglu: true
  add_bias_linear: false
  hidden_dropout: 0.0
  attention_dropout: 0.0
  untie_embeddings_and_output_weights: true
  vocab_size: 256
parallel:
  world_size: 1
training:
  micro_batch_size: 1
  global_batch_size: 2
  seq_length: 32
  bf16: true
machine:
  name: H100-SXM
"""
OFFLOAD = ["fine_grained_activation_offloading=true", "offload_modules=attn_norm,core_attn,attn_proj,mlp_norm"]
RECOMPUTE = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
SELECTIVE = ["recompute_granularity=selective", "recompute_modules=mlp"]
DENSE = []
SEQUENCE_PARALLEL = ["world_size=2", "tensor_model_parallel_size=2", "sequence_parallel=true"]
EXPERTS = ["num_experts=4", "moe_router_topk=2", "moe_grouped_gemm=true", "moe_ffn_hidden_size=64",
           "moe_token_dispatcher_type=alltoall"]
PER_TENSOR = ["delayed", "tensorwise"]


@pytest.fixture(scope="module")
def steps(offsim, tmp_path_factory):
    scenario = tmp_path_factory.mktemp("fp8") / "tiny.yaml"
    scenario.write_text(MODEL)

    @functools.cache
    def run(*settings):
        found = offsim("run", "--on", "ref", "--steps", 3, "--json", scenario, *conftest.sets(*settings), check=0)
        return json.loads(found.stdout)["steps"]
    return run


def fp8(recipe):
    return ["fp8_format=hybrid", f"fp8_recipe={recipe}"]


@pytest.mark.parametrize("layout", [DENSE, SEQUENCE_PARALLEL, EXPERTS], ids=["dense", "tp2 sp", "moe"])
@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "blockwise"])
def test_offload_and_recompute_change_no_bit(steps, recipe, layout):
    expected = steps(*fp8(recipe), *layout)
    for change in (OFFLOAD, RECOMPUTE, OFFLOAD + SELECTIVE):
        assert steps(*fp8(recipe), *layout, *change) == expected, change


@pytest.mark.parametrize("recipe", [*PER_TENSOR, "mxfp8"])
def test_gathering_in_rings_changes_no_bit(steps, recipe):
    in_rings = ["tp_comm_overlap=true", "tp_comm_overlap_rs=false"]
    assert steps(*fp8(recipe), *SEQUENCE_PARALLEL, *in_rings) == steps(*fp8(recipe), *SEQUENCE_PARALLEL)


def test_parts_of_a_quantised_matrix_are_refused(offsim):
    settings = conftest.sets(*fp8("tensorwise"), *SEQUENCE_PARALLEL, "tp_comm_overlap=true")
    message = conftest.one_error(offsim("run", "--on", "ref", "-", *settings, stdin=MODEL), 2)
    assert "does not run fp8 with tp_comm_overlap_rs; set parallel.tp_comm_overlap_rs: false" in message


@pytest.mark.parametrize("layout", [DENSE, SEQUENCE_PARALLEL], ids=["dense", "tp2 sp"])
def test_mxfp8(steps, layout):
    expected = steps(*fp8("mxfp8"), *layout)
    assert steps(*fp8("mxfp8"), *layout, *OFFLOAD) == expected


@pytest.mark.parametrize("layout", [DENSE, SEQUENCE_PARALLEL, EXPERTS], ids=["dense", "tp2 sp", "moe"])
@pytest.mark.parametrize("recipe", PER_TENSOR)
def test_one_copy_or_two(steps, recipe, layout):
    """Blackwell multiplies one copy in any layout, Hopper another that is turned: the same numbers."""
    assert steps(*fp8(recipe), *layout, "name=B200") == steps(*fp8(recipe), *layout)


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "blockwise", "mxfp8"])
def test_fp8_rounds_but_little(steps, recipe):
    for found, bf16 in zip(steps(*fp8(recipe)), steps()):
        assert found["loss_bits"] != bf16["loss_bits"]
        assert abs(found["loss"] - bf16["loss"]) < 0.01
        assert abs(found["grad_norm"] - bf16["grad_norm"]) < 0.02 * bf16["grad_norm"]
