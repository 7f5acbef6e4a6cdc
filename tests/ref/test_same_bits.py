"""What is offloaded, recomputed or scheduled otherwise changes no bit: losses, gradients and parameters of five
steps have the fingerprints of the same model that keeps everything on the device, in one stage."""

import json
import os

import pytest

from conftest import ROOT, assert_same_text, sets

STEPS = 5
PAGE = ROOT / "docs/reference/same-bits.md"
HEADER = "| model | settings of both runs | of the one beside | copies away | parameters after it |\n" \
         "|---|---|---|---|---|\n"
LLAMA, HF, DEEPSEEK = (f"docs/examples/tiny-{name}.yaml" for name in ("llama", "llama-hf", "deepseek"))
# Megatron's module sets in a dense model, and in one with experts.
DENSE_SETS = ["qkv_linear", "core_attn", "core_attn attn_proj", "attn_norm core_attn",
              "qkv_linear core_attn attn_proj mlp_norm"]
EXPERT_SETS = ["expert_fc1", "moe_act", "expert_fc1 moe_act core_attn attn_norm"]
OFFLOADED = ["fine_grained_activation_offloading=true"]
FULL = ["recompute_granularity=full", "recompute_method=uniform", "recompute_num_layers=1"]
SELECTIVE = ["recompute_granularity=selective"]
TE_NEW = ["software.container=pytorch:26.04-py3"]
# Transformer Engine's second engine leaves tensors of less than 256 Ki elements where they are.
LARGER = ["hidden_size=256", "seq_length=128", "micro_batch_size=8", "global_batch_size=8", "num_layers=3"]
FOUR_LAYERS_OF_EXPERTS = [
    "num_experts=4", "moe_ffn_hidden_size=32", "moe_router_topk=2", "moe_grouped_gemm=true",
    "moe_token_dispatcher_type=alltoall", "moe_router_dtype=fp32",
]

EXCHANGED = ["expert_model_parallel_size=2", "world_size=2", "global_batch_size=8"]
# What scenarios offload by themselves.
OFF = {DEEPSEEK: ["fine_grained_activation_offloading=false", "offload.offload_modules="],
       "docs/examples/paged-stash.yaml": ["moe_paged_stash=false"]}
STASH = "docs/examples/paged-stash.yaml"
SMALL_STASH = ["num_layers=4", "hidden_size=64", "ffn_hidden_size=128", "num_attention_heads=4", "num_experts=4",
               "moe_ffn_hidden_size=32", "moe_router_topk=2", "seq_length=64", "vocab_size=256", "world_size=4",
               "expert_model_parallel_size=2", "use_distributed_optimizer=false",
               "moe_router_force_load_balancing=true"]


def of_modules(modules, *more):
    return [*OFFLOADED, f"offload_modules={modules}", *more]


def system(name, *more):
    return [f"offload.system={name}", *more]


AWARE = ["use_distributed_optimizer=true", "use_precision_aware_optimizer=true"]
ON_HOST = ["optimizer_cpu_offload=true"]
STATES_AWAY = ["offload_optimizer_states=true", "megatron_day=2026-08-17"]
CHUNKS_AWAY = ["chunked_optimizer_state_offload=true"]
OVERLAPPING = [*ON_HOST, "overlap_cpu_optimizer_d2h_h2d=true"]
TWO_STAGES = ["pipeline_model_parallel_size=2", "world_size=2"]
HOST_EXPERTS = ["moe_use_offloading_experts=true"]
SPLIT = ["tensor_model_parallel_size=2", "sequence_parallel=true", "expert_model_parallel_size=2",
         "expert_tensor_parallel_size=1", "world_size=2", "use_distributed_optimizer=true"]
EXPERTS_IN_PARTS = [*SPLIT[:2], "expert_tensor_parallel_size=2", "world_size=2"]
SEQUENCE = ["tensor_model_parallel_size=4", "sequence_parallel=true", "world_size=4", "num_query_groups=4"]
CHECKPOINTED = [*FULL, "use_reentrant=false"]
REENTRANT = [*FULL, "use_reentrant=true"]

PLANNED = system("planned", "min_offloaded_tensor_size=1")

# Two layers of four, of two chunks.
LINEAR = ["linear_num_value_heads=4", "linear_num_key_heads=2", "linear_key_head_dim=8", "linear_value_head_dim=16",
          "linear_attention_layers=2", "attention_output_gate=true", "seq_length=80"]

# Name, scenario, what all have, what the variant has beside it.
MATRIX = [
    ("optimizer on the host", LLAMA, AWARE, ON_HOST),
    ("half of it, overlapping", LLAMA, AWARE, [*OVERLAPPING, "optimizer_offload_fraction=0.5"]),
    ("half of it, 16-bit gradients", LLAMA, [*AWARE, "main_grads_dtype=bf16"], [*ON_HOST, "optimizer_offload_fraction=0.5"]),
    ("experts' optimizer on the host", LLAMA, [*AWARE, *FOUR_LAYERS_OF_EXPERTS],
     [*OVERLAPPING, "optimizer_offload_fraction=0.7"]),
    ("optimizer states away", LLAMA, AWARE[:1], STATES_AWAY),
    ("optimizer states away, precision-aware", LLAMA, AWARE, STATES_AWAY),
    ("optimizer states of experts away", LLAMA, [*AWARE[:1], *FOUR_LAYERS_OF_EXPERTS], STATES_AWAY),
    ("optimizer states of two stages away", LLAMA, AWARE[:1], [*STATES_AWAY, *TWO_STAGES]),
    ("optimizer states loaded and away", LLAMA, AWARE[:1], [*STATES_AWAY, "resumes=true"]),
    ("optimizer states in two chunks", LLAMA, [*AWARE[:1], "num_layers=4"],
     [*CHUNKS_AWAY, "optimizer_state_offload_chunk_size_mb=1"]),
    ("half of them in chunks, precision-aware", LLAMA, AWARE, [*CHUNKS_AWAY, "optimizer_state_offload_fraction=0.5"]),
    ("optimizer states of experts in chunks", LLAMA, [*AWARE[:1], *FOUR_LAYERS_OF_EXPERTS],
     [*CHUNKS_AWAY, "optimizer_state_offload_chunk_size_mb=1", "optimizer_state_offload_fraction=0.7"]),
    ("optimizer states loaded and in chunks", LLAMA, [*AWARE[:1], "num_layers=4"],
     [*CHUNKS_AWAY, "optimizer_state_offload_chunk_size_mb=1", "resumes=true"]),
    ("optimizer states loaded and in one chunk, precision-aware", LLAMA, AWARE, [*CHUNKS_AWAY, "resumes=true"]),
    ("optimizer states of two stages in chunks", LLAMA, AWARE[:1], [*CHUNKS_AWAY, *TWO_STAGES]),
    ("optimizer of two stages on the host", LLAMA, AWARE, [*OVERLAPPING, *TWO_STAGES]),
    *((f"megatron {modules}", LLAMA, [], of_modules(modules)) for modules in DENSE_SETS),
    *((f"megatron {modules}", LLAMA, FOUR_LAYERS_OF_EXPERTS, of_modules(modules)) for modules in EXPERT_SETS),
    ("megatron, experts in parts", LLAMA, [*FOUR_LAYERS_OF_EXPERTS, *EXPERTS_IN_PARTS], of_modules("expert_fc1 core_attn")),
    ("experts on the host", LLAMA, FOUR_LAYERS_OF_EXPERTS, [*HOST_EXPERTS, "moe_offloading_num_chunks=4"]),
    ("experts on the host, allgather", LLAMA,
     [*FOUR_LAYERS_OF_EXPERTS, "moe_token_dispatcher_type=allgather"], [*HOST_EXPERTS, "moe_offloading_num_chunks=2"]),
    ("experts on the host, padded", LLAMA,
     [*FOUR_LAYERS_OF_EXPERTS, "moe_expert_capacity_factor=1", "moe_pad_expert_input_to_capacity=true"],
     [*HOST_EXPERTS, "moe_offloading_num_chunks=2"]),
    ("experts on the host, first products again", LLAMA, FOUR_LAYERS_OF_EXPERTS,
     [*HOST_EXPERTS, *SELECTIVE, "recompute_modules=moe_act", "moe_offloading_num_chunks=2"]),
    ("experts on the host, two stages, all again", LLAMA, FOUR_LAYERS_OF_EXPERTS, [*HOST_EXPERTS, *FULL, *TWO_STAGES]),
    ("experts of two ranks on the host, sharded", LLAMA, [*FOUR_LAYERS_OF_EXPERTS, *SPLIT],
     [*HOST_EXPERTS, "moe_offloading_num_chunks=2"]),
    ("experts on the host, attention away", LLAMA, FOUR_LAYERS_OF_EXPERTS,
     [*HOST_EXPERTS, "moe_offloading_num_chunks=2", *of_modules("attn_norm core_attn attn_proj")]),
    ("megatron mlp_act", LLAMA, [], of_modules("mlp_act")),
    ("megatron mlp_act recomputed, half", LLAMA, [],
     of_modules("mlp_act", *SELECTIVE, "recompute_modules=core_attn,mlp_act", "activation_offload_fraction=0.5", *TWO_STAGES)),
    ("megatron layer_input", LLAMA, [], of_modules("layer_input", *FULL)),
    ("megatron layer_input of two layers, two stages", LLAMA, ["num_layers=8"],
     of_modules("layer_input", *FULL[:2], "recompute_num_layers=2", *TWO_STAGES)),
    ("megatron half", LLAMA, [], of_modules("core_attn attn_proj", "activation_offload_fraction=0.5")),
    ("megatron one in flight", LLAMA, [],
     of_modules("core_attn", "fine_grained_offloading_max_inflight_offloads=1")),
    ("megatron as released", LLAMA, [], of_modules("core_attn", "offload.mode=as_released")),
    ("megatron_pr1752", LLAMA, [], [*of_modules("core_attn"), *system("megatron_pr1752"), *TWO_STAGES,
                                    "num_virtual_stages_per_pipeline_rank=2"]),
    ("te_v1 2 layers", LLAMA, [], ["cpu_offloading_num_layers=2"]),
    ("te_v1 double buffering", LLAMA, TE_NEW,
     ["cpu_offloading_num_layers=3", "cpu_offloading_double_buffering=true"]),
    ("te_v2 2 layers", LLAMA, [*TE_NEW, *LARGER], ["cpu_offloading_num_layers=2", "software.nvte_cpu_offload_v1=false"]),
    ("te_v2 by hand", LLAMA, [*TE_NEW, *LARGER],
     ["cpu_offloading_num_layers=2", "cpu_offloading_manual_synchronization=true", "cpu_offloading_layers=0,1",
      "software.nvte_cpu_offload_v1=false"]),
    ("full recompute", LLAMA, [], FULL),
    ("full recompute, block", LLAMA, [],
     ["recompute_granularity=full", "recompute_method=block", "recompute_num_layers=2"]),
    ("full recompute, block, megatron as released", LLAMA, [],
     of_modules("core_attn attn_proj", "offload.mode=as_released", "recompute_granularity=full", "recompute_method=block",
                "recompute_num_layers=2")),
    ("recompute core_attn", LLAMA, [], SELECTIVE),
    ("recompute norms and mlp", LLAMA, [], [*SELECTIVE, "recompute_modules=layernorm mlp"]),
    ("recompute norms and activations of experts, copied", LLAMA, FOUR_LAYERS_OF_EXPERTS,
     [*SELECTIVE, "recompute_modules=layernorm moe_act", "megatron_day=2026-03-10"]),
    ("recompute with offload", LLAMA, [],
     [*of_modules("core_attn"), *SELECTIVE, "recompute_modules=layernorm"]),
    ("pp2", LLAMA, [], ["pipeline_model_parallel_size=2", "world_size=2"]),
    ("pp2 vpp2", LLAMA, [],
     ["pipeline_model_parallel_size=2", "world_size=2", "num_virtual_stages_per_pipeline_rank=2"]),
    ("pp2 vpp2 offloaded", LLAMA, [],
     ["pipeline_model_parallel_size=2", "world_size=2", "num_virtual_stages_per_pipeline_rank=2",
      *of_modules("core_attn attn_proj")]),
    ("pp4", LLAMA, [], ["pipeline_model_parallel_size=4", "world_size=4"]),
    ("products beside exchanges", LLAMA, SEQUENCE, ["tp_comm_overlap=true"]),
    ("products beside exchanges in rings", LLAMA, SEQUENCE,
     ["tp_comm_overlap=true", "tp_comm_overlap_rs_method=ring_exchange"]),
    ("save_on_cpu", HF, [], system("save_on_cpu")),
    ("trl", HF, [], system("trl")),
    ("trl with checkpoints", HF, [], [*system("trl"), *CHECKPOINTED]),
    ("trl_sync", HF, [], system("trl_sync")),
    ("planned", HF, [], PLANNED),
    ("planned, little room", HF, [], [*PLANNED, "planned_device_bytes=65536"]),
    ("planned, every second layer again", HF, [], [*PLANNED, *CHECKPOINTED, "recompute_layers=([0,1]*2)"]),
    ("planned, all but products again", HF, [],
     [*PLANNED, *CHECKPOINTED, "selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm"]),
    ("planned, the second layer's MLP kept", HF, [],
     [*PLANNED, *CHECKPOINTED, "selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm",
      "selective_checkpointing_mlp_layers=([0,1]*2)"]),
    ("planned, norms before attention and the second layer's MLP again", HF, [],
     [*PLANNED, *CHECKPOINTED, "selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm",
      "recompute_mlp_layers=([0,1]*2)"]),
    ("planned, norms and the second layer's activation again", HF, [],
     [*PLANNED, *CHECKPOINTED, "selective_checkpointing=true", "selective_checkpointing_save=attention,aten::mm",
      "recompute_mlp_layers=1", "selective_checkpointing_activation_layers=([1,0]*2)"]),
    ("attention and MLPs in checkpoints of their own", HF, [], [*CHECKPOINTED, "recompute_mlp_layers=([0,1]*2)"]),
    ("planned, four stages", LLAMA, [], [*PLANNED, "pipeline_model_parallel_size=4", "world_size=4", "planned_device_bytes=65536"]),
    ("planned, two stages of two chunks", LLAMA, [],
     [*PLANNED, *TWO_STAGES, "num_virtual_stages_per_pipeline_rank=2", "planned_device_bytes=65536"]),
    ("planned, norms and MLP again, two stages", LLAMA, [],
     [*PLANNED, *TWO_STAGES, *SELECTIVE, "recompute_modules=layernorm mlp"]),
    ("planned, all again, two stages", LLAMA, [], [*PLANNED, *TWO_STAGES, *FULL]),
    ("planned, experts, two stages of two chunks", LLAMA, FOUR_LAYERS_OF_EXPERTS,
     [*PLANNED, *TWO_STAGES, "num_virtual_stages_per_pipeline_rank=2"]),
    ("checkpoints", HF, [], CHECKPOINTED),
    ("reentrant checkpoints", HF, [], REENTRANT),
    ("hidden_states", HF, [], [*system("hidden_states"), *CHECKPOINTED]),
    ("hidden_states_reentrant", HF, [], [*system("hidden_states_reentrant"), *REENTRANT]),
    ("transformers", HF, [], [*system("transformers"), *CHECKPOINTED]),
    ("transformers, reentrant", HF, [], [*system("transformers"), *REENTRANT]),
    ("transformers, every second layer", HF, ["num_layers=3"],
     [*system("transformers"), *CHECKPOINTED, "every_n_layers=2"]),
    ("deepspeed", HF, ["num_layers=5"], [*system("deepspeed"), *REENTRANT]),
    ("axolotl_disk", HF, [], [*system("axolotl_disk"), *REENTRANT]),
    ("selective_checkpointing of hidden states", HF, [],
     [*system("selective_checkpointing"), *CHECKPOINTED, "selective_checkpointing_hidden_states=true"]),
    ("selective_checkpointing of attention", HF,
     ["num_layers=3", "hidden_size=256", "ffn_hidden_size=64", "micro_batch_size=64", "global_batch_size=64"],
     [*system("selective_checkpointing"), *CHECKPOINTED]),
    ("linear attention, trl", HF, LINEAR, system("trl")),
    ("linear attention, save_on_cpu", HF, [*LINEAR, "linear_fused_projections=true"], system("save_on_cpu")),
    ("linear attention, checkpoints", HF, LINEAR, [*system("hidden_states"), *CHECKPOINTED]),
    ("linear attention, adapters", HF, [*LINEAR, "adapter=lora", "lora_r=4"], system("trl_sync")),
    ("verl", HF, [], [*system("verl"), "fsdp=fsdp2"]),
    ("veomni", HF, [], system("veomni")),
    ("veomni under FSDP2", HF, ["fsdp=fsdp2"], system("veomni")),
    ("veomni, some stay", HF, ["fsdp=fsdp2"], system("veomni", "activation_gpu_limit=0.0001")),
    ("veomni, checkpoints", HF, ["fsdp=fsdp2"], [*system("veomni"), *CHECKPOINTED]),
    ("veomni, frozen weights", HF, ["adapter=lora", "lora_r=4", "fsdp=fsdp2"], system("veomni")),
    ("layer_offloading", HF, ["adapter=lora", "lora_r=4"], system("layer_offloading")),
    *((" ".join(["layer_offloading beside", name, *more]), HF, ["adapter=lora", "lora_r=4"],
       [*system(name), "layer_offloading=true", *more])
      for name, more in [("trl", []), ("trl", ["trl_params_registered=false"]), ("trl_sync", ["trl_params_registered=false"]),
                         ("hidden_states", CHECKPOINTED), ("hidden_states_reentrant", REENTRANT), ("transformers", CHECKPOINTED),
                         ("axolotl_disk", REENTRANT), ("selective_checkpointing", CHECKPOINTED)]),
    ("qlora, trl", HF, ["adapter=qlora", "lora_r=4"], system("trl")),
    ("fp8", LLAMA, ["fp8_format=hybrid", "fp8_recipe=tensorwise"], of_modules("core_attn attn_proj")),
    ("tokens exchanged beside another micro-batch", LLAMA, [*FOUR_LAYERS_OF_EXPERTS, *EXCHANGED],
     of_modules("moe_act", "overlap_moe_expert_parallel_comm=true")),
    ("cuda graphs", LLAMA, [], of_modules("core_attn", "cuda_graph_impl=transformer_engine", "cuda_graph_modules=attn")),
    ("paged stash", STASH, SMALL_STASH, ["moe_paged_stash=true"]),
    ("paged stash and modules", STASH, SMALL_STASH,
     ["moe_paged_stash=true", *of_modules("core_attn attn_proj", "min_offloaded_tensor_size=0", "offload.mode=fixed")]),
    ("deepseek, seven modules", DEEPSEEK, [], of_modules(
        "attn_norm core_attn attn_proj mlp_norm expert_fc1 moe_act qkv_linear")),
]


def steps(offsim, scenario, settings):
    done = offsim("run", "--on", "ref", "--steps", STEPS, "--json", *sets("offload.mode=fixed", *settings), scenario, check=0)
    return json.loads(done.stdout)["steps"]


@pytest.fixture(scope="module")
def kept(offsim):
    """The runs that keep everything, one for each model."""
    runs = {}

    def run(scenario, common):
        key = (scenario, *common)
        if key not in runs:
            runs[key] = steps(offsim, scenario, [*common, *OFF.get(scenario, [])])
        return runs[key]

    return run


def copies(offsim, scenario, settings):
    """How many ops move tensors away, in one iteration."""
    plan = offsim("plan", *sets("offload.mode=fixed", *settings), scenario, check=0).stdout
    return sum(line.startswith(MOVES) for line in plan.splitlines())


pytestmark = pytest.mark.xdist_group("test_same_bits")  # the last one has the rows of all others
MOVES = ("  d2h ", "  disk_write ", "  kernel     pack ")
ROWS = {}  # of the page, as far as they have been run


@pytest.mark.parametrize("name,scenario,common,variant", MATRIX, ids=[row[0].replace(" ", "_") for row in MATRIX])
def test_same_bits(offsim, kept, name, scenario, common, variant):
    found = steps(offsim, scenario, [*common, *variant])
    assert found == kept(scenario, common)
    moved = copies(offsim, scenario, [*common, *variant])
    systems = ("offload.system", "fine_grained", "cpu_offloading_num", "moe_paged", "optimizer_cpu", "offload_optimizer",
               "chunked_optimizer", "moe_use_offloading")
    offloads = any(word.startswith(systems) for word in variant)
    assert offloads == (moved > 0), "what is to be compared does not happen"
    model = scenario.split("/")[-1].removesuffix(".yaml")
    ROWS[name] = f"| {model} | {settings_of(common)} | {settings_of(variant)} | {moved} | " \
                 f"`{found[-1]['params_fingerprint'][:16]}` |\n"


def settings_of(words):
    return " ".join(f"`{word}`" for word in words) or "-"


def test_the_page_shows_the_matrix():
    """After all of the above; BLESS=1 writes it."""
    assert len({row[0] for row in MATRIX}) == len(MATRIX)
    if len(ROWS) < len(MATRIX):
        pytest.skip("only after all of the matrix")
    head, table = PAGE.read_text().split(HEADER)
    rows = "".join(ROWS[row[0]] for row in MATRIX)
    if os.environ.get("BLESS"):
        PAGE.write_text(head + HEADER + rows)
        return
    assert_same_text(rows, table, PAGE.name)
