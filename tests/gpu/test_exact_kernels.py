"""The exact kernels of cuda/, compiled for the CPU, write the bits that ref's kernels write: in every kernel and
collective of training steps of the settings that the reference execution is tested with.

Alone, it prints the command lines, for a machine that has GPUs, and leaves scenarios in the folder:

    PYTHONPATH=tests:tests/ref:tests/properties python3 -B tests/gpu/test_exact_kernels.py PROGRAM FOLDER [--gpu]
"""

import collections
import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

import test_layouts
import test_ref_attention
import test_ref_flex
import test_ref_fp8
import test_ref_lora
import test_ref_moe
import test_ref_robustness
import test_same_bits
from conftest import ROOT, TIMEOUT_S, sets

LLAMA, HF, DEEPSEEK = (f"docs/examples/tiny-{name}.yaml" for name in ("llama", "llama-hf", "deepseek"))
ROW = re.compile(r"(\w+) +compared +(\d+)  missing +(\d+)  different +(\d+)")
SEEDS = 20  # of the scenarios that are drawn

# What the others leave out.
DENSE = ["add_bias_linear=true", "normalization=LayerNorm", "swiglu=false", "hidden_dropout=0.1", "attention_dropout=0.1",
         "position_embedding_type=learned_absolute", "max_position_embeddings=64"]
LINEAR = ["linear_num_value_heads=4", "linear_num_key_heads=2", "linear_key_head_dim=6", "linear_value_head_dim=5",
          "linear_attention_layers=2", "attention_output_gate=true", "seq_length=70", "max_position_embeddings=128"]
LLAMA4 = ["attention_class=llama4", "rotary_form=complex", "qk_l2_norm=true", "attn_temperature_tuning=true", "floor_scale=5",
          "rope_layers=[1,0,1,0]", "num_experts=3", "moe_class=llama4", "moe_router_topk=1", "moe_router_score_function=sigmoid",
          "moe_ffn_hidden_size=24", "moe_shared_expert_intermediate_size=40", "moe_layer_freq=2", "moe_grouped_gemm=true"]
HF_WAYS = [
    [], ["attn_implementation=eager", "micro_batch_size=2"],
    ["attn_implementation=eager", "attn_logit_softcapping=5", "final_logit_softcapping=3"],
    ["hidden_act=gelu"], ["hidden_act=gelu_pytorch_tanh"],
    ["attn_implementation=eager", "num_query_groups=4", "position_embedding_type=none"],
    ["attn_implementation=flash_attention_2", "fused_projections=true"],
    ["fused_projections=true", "qk_layernorm=true", "fused_rms_norm=false"],
    ["untie_embeddings_and_output_weights=false", "add_qkv_bias=true", "add_bias_linear=true"],
    ["training.loss=log_probs", "global_batch_size=4"], LINEAR, [*LINEAR, "linear_fused_projections=true", "bf16=true"], ["optimizer=sgd"], ["fsdp=fsdp2"],
    LLAMA4, [*LLAMA4, "linearized_experts=true", "attn_implementation=eager", "micro_batch_size=2"],
]
MOE_WAYS = [
    [], ["moe_permute_fusion=true"], ["moe_router_fusion=true"], ["moe_token_dispatcher_type=allgather"],
    ["moe_token_dispatcher_type=allgather", "moe_permute_fusion=true"], ["bias_activation_fusion=false"],
    ["moe_expert_capacity_factor=1"], ["moe_expert_capacity_factor=1", "moe_pad_expert_input_to_capacity=true"],
    ["moe_grouped_gemm=false"], ["mtp_num_layers=1"], ["expert_model_parallel_size=2"],
    ["moe_token_dispatcher_type=allgather", "expert_model_parallel_size=2"],
]
# Loads, activations and losses of models with experts, in addition to test_layouts.EXPERTS.
EXPERTS_WAYS = [
    ["add_bias_linear=true"], ["add_bias_linear=true", "moe_grouped_gemm=false"],
    ["squared_relu=true", "swiglu=false"], ["moe_z_loss_coeff=0.001"],
    ["moe_shared_expert_intermediate_size=32", "moe_shared_expert_gate=true"],
    *([load, f"moe_router_topk={k}"] for load in ("moe_router_load_balancing_type=[sinkhorn]",) for k in (1, 2)),
]
# Rows of one number, and rows that are not made of words of 8 bytes.
ROWS_WAYS = [["moe_router_topk=1", "moe_router_pre_softmax=true"],
             ["hidden_size=26", "num_attention_heads=2", "kv_channels=6"]]
FUSED_LOSS = ["cross_entropy_loss_fusion=true"]
TWO_RANKS = ["tensor_model_parallel_size=2", "world_size=2"]
LOSS_WAYS = [[*FUSED_LOSS, "cross_entropy_fusion_impl=te"], [*FUSED_LOSS, "cross_entropy_fusion_impl=te", *TWO_RANKS],
             [*FUSED_LOSS, "cross_entropy_fusion_impl=linear"], [*FUSED_LOSS, *TWO_RANKS]]


def scenarios():
    """Name, scenario (a file, or the text of one), settings."""
    for name, scenario, common, variant in test_same_bits.MATRIX:
        if not set(test_same_bits.LARGER) <= set(common):  # they take long, and differ in their copies alone
            yield f"same bits, {name}", scenario, ["offload.mode=fixed", *common, *variant]
    for name, common, one, other in test_layouts.NEAR + test_layouts.SAME:
        yield f"layouts, {name}", LLAMA, [*common, *other]
    for model, settings in test_ref_attention.MODELS.items():
        for name, ways in (test_ref_attention.SAME | test_ref_attention.NEAR).items():
            for number, way in enumerate(ways):
                yield f"attention, {model}, {name} {number}", LLAMA, [*test_ref_attention.PADDED, *settings, *way]
    for backend, settings in test_ref_flex.FLEX.items():
        for name, way in test_ref_flex.WAYS.items():
            yield f"{backend}, {name}", LLAMA, [*test_ref_flex.EXPERTS, *settings, *way]
    for name, settings in {**test_ref_flex.FLEX, "alltoall": test_ref_flex.ALL_TO_ALL}.items():
        for number, way in enumerate(ROWS_WAYS):
            yield f"{name}, rows {number}", LLAMA, [*test_ref_flex.EXPERTS, *settings, *way]
    yield "paged stash", test_ref_flex.STASH, test_ref_flex.SMALL
    for recipe in ("delayed", "tensorwise", "blockwise", "mxfp8"):
        for name in ("DENSE", "SEQUENCE_PARALLEL", "EXPERTS")[:2 if recipe == "mxfp8" else 3]:
            yield f"fp8 {recipe}, {name}", test_ref_fp8.MODEL, [*test_ref_fp8.fp8(recipe), *getattr(test_ref_fp8, name)]
    yield "fp8 on B200", test_ref_fp8.MODEL, [*test_ref_fp8.fp8("tensorwise"), "name=B200"]
    for number, way in enumerate(HF_WAYS):
        yield f"hf {number}", HF, way
    for name in ("LORA", "QLORA", "FUSED", "LIGER"):
        yield f"lora {name}", "machine: {name: ideal}", [*test_ref_lora.BASE, "adapter=lora", "lora_dropout=0.1",
                                                          *getattr(test_ref_lora, name)]
    for number, way in enumerate(MOE_WAYS):
        yield f"experts {number}", DEEPSEEK, [*test_ref_moe.PLAIN, *way]
    for number, way in enumerate(EXPERTS_WAYS):
        yield f"experts of llama {number}", LLAMA, [*test_layouts.EXPERTS, "moe_router_force_load_balancing=false", *way]
    for number, way in enumerate(LOSS_WAYS):
        yield f"loss {number}", LLAMA, way
    yield "dense", LLAMA, DENSE
    yield "L2 norm of queries and keys", LLAMA, ["qk_l2_norm=true"]
    yield "deterministic algorithms", LLAMA, ["deterministic_mode=true"]
    yield "sums without fusion", LLAMA, ["gradient_accumulation_fusion=false", "global_batch_size=4"]
    yield "dense over ranks", LLAMA, [*DENSE, "world_size=4", "tensor_model_parallel_size=2", "sequence_parallel=true",
                                      "context_parallel_size=2"]
    for seed in range(SEEDS):
        yield f"drawn {seed}", json.dumps(test_ref_robustness.draw_small(seed), indent=1), []


def distinct():
    """In the order above; what differs in steps and names alone is one."""
    seen = {}
    for name, scenario, settings in scenarios():
        seen.setdefault((scenario, *settings), (name, scenario, settings))
    return list(seen.values())


def command(program, number, scenario, settings, folder):
    path = scenario
    if not scenario.endswith(".yaml"):
        path = folder / f"{number}.yaml"
        path.write_text(scenario)
    return [program, "--steps", "1", *sets(*settings), path]


pytestmark = pytest.mark.xdist_group("test_exact_kernels")  # the last one adds up what the others have counted
ROWS = collections.Counter()  # how often each was compared, in all that has run
RAN = set()
RUNS = distinct()


@pytest.mark.parametrize("number", range(len(RUNS)), ids=[run[0].replace(" ", "_") for run in RUNS])
def test_exact_kernels(tmp_path, number):
    name, scenario, settings = RUNS[number]
    RAN.add(number)
    words = command(ROOT / "out/release/check_exact", number, scenario, settings, tmp_path)
    done = subprocess.run(words, cwd=ROOT, text=True, capture_output=True, timeout=TIMEOUT_S)
    if name.startswith("drawn") and done.returncode == 2:
        return  # refused, as others of them are run
    found = ROW.findall(done.stdout)
    assert found and done.returncode == 0, done.stdout + done.stderr
    for row, compared, *_ in found:
        ROWS[row] += int(compared)
    assert not [row for row, _, missing, _ in found if missing != "0"]


def test_every_row_is_compared():
    """After all of the above."""
    if len(RAN) < len(RUNS):
        pytest.skip("only after all of the others")
    assert not [row for row, compared in ROWS.items() if compared == 0]


if __name__ == "__main__":
    for line, (_, of, changes) in enumerate(RUNS):
        print(shlex.join(map(str, command(sys.argv[1], line, of, changes, pathlib.Path(sys.argv[2])) + sys.argv[3:])))
