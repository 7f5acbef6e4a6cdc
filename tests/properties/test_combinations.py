"""Whatever is combined is predicted soundly, or refused with one message: never an assertion, a signal, a hang."""

import json
import random
import re

from conftest import ROOT, errors_of

SEEDS = 150
SEEDS_OF_ALL = 3000
LIMIT_S = 120  # of one run: the longest drawn one, with a million sequences in a batch, takes 16 s on an idle machine
NOTICEABLE = 1 << 20  # bytes of a saving
LONG_PLAN = 3000000  # characters: longer ones are not read back
PLACED = re.compile(r"^(?:\S+\.yaml(?::\d+:\d+)?|offsim): error: \S")
# Sections, names and choices of the tables that the program itself is made from.
SYSTEMS = re.findall(r"^  X\((\w+), +(\w+), +(\w+),", (ROOT / "sim/config/offload_systems.h").read_text(), re.M)
KEY = re.compile(r'^KEY\((\w+), (\w+), (FLAG|INT|REAL|TEXT|LIST|CHOICE|CHOICES), "[^"]*", ((?:WORD\([^)]*\) ?)+(?:OFFLOAD\w+\(\w+\))?|[-\w.]+), ([-\w.]+)', re.M)
KEYS = [row for path in sorted((ROOT / "sim/config/keys").glob("*.def")) for row in KEY.findall(path.read_text())]


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        every = metafunc.config.getoption("--all-configurations")
        metafunc.parametrize("seed", range(SEEDS_OF_ALL if every else SEEDS))


# ---- drawing ----


def maybe(r, probability, **settings):
    return settings if r.random() < probability else {}


def draw_shape(r, layers):
    heads = r.choice([2, 4, 8])
    return {
        "num_layers": layers,
        "hidden_size": heads * r.choice([32, 64, 128]),
        "num_attention_heads": heads,
        "group_query_attention": r.random() < 0.6,
        "vocab_size": r.choice([999, 1000, 32000]),
        "untie_embeddings_and_output_weights": r.random() < 0.5,
        "qk_layernorm": r.random() < 0.2,
        "add_bias_linear": r.random() < 0.2,
        "position_embedding_type": r.choice(["rope", "rope", "none"]),
    }


def draw_batch(r, data_parallel, microbatches):
    size = r.choice([1, 1, 2])
    return {
        "micro_batch_size": size,
        "global_batch_size": size * data_parallel * microbatches,
        "seq_length": r.choice([128, 512, 2048]),
        **r.choice([{"bf16": True}, {"bf16": True}, {"fp16": True}, {}]),
    }


def draw_hf_recompute(r):
    if r.random() < 0.3:
        return {}
    return {
        "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1,
        "use_reentrant": r.random() < 0.4,
        **maybe(r, 0.2, every_n_layers=r.choice([2, 3])),
        **maybe(r, 0.3, recompute_layers=r.choice(["2", "3"])),
        **maybe(r, 0.2, recompute_mlp_layers=r.choice(["1", "2", "3"])),
        **maybe(r, 0.2, selective_checkpointing=True),
        **maybe(r, 0.2, selective_checkpointing_save=r.sample(["attention", "aten::mm", "aten::addmm", "aten::bmm"], 2)),
        **maybe(r, 0.2, selective_checkpointing_mlp_layers=r.choice(["1", "2", "3"])),
        **maybe(r, 0.2, selective_checkpointing_activation_layers=r.choice(["1", "2", "3"])),
    }


def draw_lora(r, wanted):
    if r.random() > wanted:
        return {}
    linears = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return {
        "adapter": r.choice(["lora", "qlora"]),
        "lora_r": r.choice([1, 8, 64]),
        "lora_dropout": r.choice([0.0, 0.05]),
        **maybe(r, 0.3, lora_target_modules=r.sample(linears, r.randrange(1, 7))),
        **maybe(r, 0.2, autocast_adapter_dtype=False),
        **maybe(r, 0.2, lora_qkv_kernel=True),
        **maybe(r, 0.2, lora_o_kernel=True),
        **maybe(r, 0.2, lora_mlp_kernel=True),
    }


def draw_fsdp(r, world, wanted):
    if r.random() > wanted:
        return {}
    return {
        "fsdp": r.choice(["fsdp", "fsdp2"]),
        "fsdp_reshard_after_forward": r.random() < 0.7,
        **maybe(r, 0.3, fsdp_size=r.choice([1, 2, world])),
        **maybe(r, 0.4, fsdp_model_dtype=r.choice(["fp32", "bf16"])),
        **maybe(r, 0.4, fsdp_reduce_dtype=r.choice(["fp32", "bf16"])),
        **maybe(r, 0.2, fsdp_forward_prefetch=True),
        **maybe(r, 0.2, fsdp_wrap_embedding=True),
    }


def draw_hf_offload(r, system):
    return {
        "system": system,
        **maybe(r, 0.3, max_fwd_stash_size=r.choice([1, 2, 50])),
        **maybe(r, 0.2, trl_params_registered=False),
        **maybe(r, 0.2, exclude_output_layer=False),
        **maybe(r, 0.5, planned_device_bytes=r.choice([1, 1 << 16, 1 << 20, 1 << 24])),
        **maybe(r, 0.2, min_offloaded_tensor_size=r.choice([0, 1024, 1 << 40])),
        **maybe(r, 0.2, selective_checkpointing_hidden_states=True),
        **maybe(r, 0.3, layer_offloading=True),
        **maybe(r, 0.3, activation_gpu_limit=r.choice([0.001, 0.01, 64])),
    }


def draw_hf(r, system):
    """Plain modules of Hugging Face, with what their trainers do."""
    world = r.choice([1, 1, 2, 4, 8, 16])
    model = {
        **draw_shape(r, r.choice([1, 2, 3, 4, 6])),
        "implementation": "hf", "normalization": "RMSNorm", "swiglu": True,
        "attn_implementation": r.choice(["eager", "sdpa", "flash_attention_2"]),
        **maybe(r, 0.15, fused_projections=True), **maybe(r, 0.15, fused_rms_norm=True),
        **maybe(r, 0.2, liger_glu_activation=True), **maybe(r, 0.2, liger_fused_linear_cross_entropy=True),
        **maybe(r, 0.1, attention_dropout=0.1),
    }
    scenario = {
        "model": model,
        "parallel": {"world_size": world, **draw_fsdp(r, world, {"verl": 0.95, "veomni": 0.7}.get(system, 0.3))},
        "training": {
            **draw_batch(r, world, r.choice([1, 2, 3, 5])),
            "optimizer": r.choice(["adam", "sgd", "none", "adamw_torch", "adamw_torch_fused", "adamw_8bit",
                                   "paged_adamw_8bit", "paged_adamw_32bit"]),
            **maybe(r, 0.2, keep_gradients=True), **maybe(r, 0.2, loss="log_probs"),
        },
        "recompute": draw_hf_recompute(r),
        "lora": draw_lora(r, 0.9 if system == "layer_offloading" else 0.35),
        "offload": draw_hf_offload(r, system),
    }
    scenario["model"] |= draw_linear_attention(r)
    return scenario


def draw_linear_attention(r):
    if r.random() < 0.8:
        return {}
    return {"linear_num_value_heads": 4, "linear_num_key_heads": r.choice([2, 4]), "linear_key_head_dim": r.choice([32, 256]),
            "linear_value_head_dim": 64, "linear_attention_layers": r.choice([1, 2]),
            **maybe(r, 0.5, linear_fused_projections=True)}


def draw_attention(r):
    if r.random() < 0.3:
        return {"multi_latent_attention": True, "group_query_attention": False, "kv_lora_rank": 64,
                "q_lora_rank": r.choice([0, 64]), "qk_head_dim": 64, "qk_pos_emb_head_dim": 32, "v_head_dim": 64}
    return maybe(r, 0.4, num_query_groups=2)


def draw_experts(r, expert_parallel, stash):
    dispatcher = "flex" if stash else r.choice(["alltoall", "allgather", "flex"])
    return {
        "num_experts": expert_parallel * r.choice([2, 4]),
        "moe_ffn_hidden_size": r.choice([128, 256]),
        "moe_router_topk": r.choice([1, 2, 2]),
        "moe_router_pre_softmax": r.random() < 0.5,
        "moe_grouped_gemm": r.random() < 0.8,
        "add_bias_linear": False,
        "moe_token_dispatcher_type": dispatcher,
        "moe_flex_dispatcher_backend": r.choice(["hybridep", "ncclep"]) if stash else r.choice(["deepep", "hybridep"]),
        **maybe(r, 0.3, moe_layer_freq=2),
        **maybe(r, 0.3, moe_shared_expert_intermediate_size=256),
        **maybe(r, 0.1, moe_shared_expert_overlap=True),
        **maybe(r, 0.3, moe_imbalance=r.choice([1.2, 2.0])),
        **maybe(r, 0.3, moe_permute_fusion=True), **maybe(r, 0.3, moe_router_fusion=True),
        **maybe(r, 0.2, moe_router_dtype="fp32"),
        **maybe(r, 0.2, use_transformer_engine_op_fuser=True), **maybe(r, 0.1, moe_apply_probs_on_input=True),
        **maybe(r, 0.15, moe_expert_capacity_factor=r.choice([0.5, 1.0, 2.0])),
        **maybe(r, 0.15, moe_pad_expert_input_to_capacity=True),
        **maybe(r, 0.95 if stash else 0.05, moe_expert_rank_capacity_factor=r.choice([1.0, 2.0, 4.0]),
                moe_use_grouped_tensor=True),
    }


def draw_recompute(r, moe, mla):
    kind = r.choice(["", "", "selective", "selective", "full"])
    if kind == "full":
        return {"recompute_granularity": "full", "recompute_method": r.choice(["uniform", "block"]),
                "recompute_num_layers": r.choice([1, 1, 2]), **maybe(r, 0.1, distribute_saved_activations=True)}
    modules = ["core_attn", "layernorm", "mlp"] + ["moe_act", "moe", "shared_experts"] * moe + ["mla_up_proj"] * mla
    names = r.sample(modules, r.randrange(1, len(modules) + 1 if r.random() < 0.2 else 3))
    return {"recompute_granularity": "selective", "recompute_modules": names} if kind else {}


def draw_modules(r, moe):
    modules = ["core_attn", "attn_proj", "qkv_linear", "attn_norm", "mlp_norm"]
    modules += ["expert_fc1", "moe_act", "fused_group_mlp"] * moe
    return r.sample(modules, r.randrange(1, 4))


def draw_fine_grained(r, moe):
    return {
        "offload_modules": draw_modules(r, moe),
        "min_offloaded_tensor_size": r.choice([0, 1, 4096, 65536]),
        "mode": r.choice(["fixed", "fixed", "as_released", "pr7575"]),
        **maybe(r, 0.3, activation_offload_fraction=r.choice([0.0, 0.3, 0.5])),
        **maybe(r, 0.3, delta_offload_bytes_across_pp_ranks=r.choice([1, 1 << 20, 1 << 40])),
        **maybe(r, 0.3, fine_grained_offloading_max_inflight_offloads=r.choice([0, 1, 4])),
        **maybe(r, 0.1, delay_offload_until_cuda_graph=True),
    }


def draw_layer_engine(r, layers):
    return {
        "cpu_offloading_num_layers": r.randrange(0, layers + 1),
        **maybe(r, 0.3, cpu_offloading_double_buffering=True),
        **maybe(r, 0.2, cpu_offloading_retain_pinned_cpu_buffers=True),
        **maybe(r, 0.3, cpu_offloading_manual_synchronization=True,
                cpu_offloading_layers=r.sample([str(i) for i in range(layers)], r.randrange(0, layers + 1)),
                cpu_offloading_release_after=r.choice([0, 1, 3]), cpu_offloading_reload_ahead=r.choice([0, 1, 3]),
                cpu_offloading_stream=r.choice(["", "compute", "comm"])),
    }


def draw_stash(r):
    return {
        **maybe(r, 0.3, moe_paged_stash_page_size=r.choice([1, 16, 4096])),
        **maybe(r, 0.4, moe_paged_stash_buffer_size_factor_cuda=r.choice([-1.0, 0.1, 0.5, 2.0])),
        **maybe(r, 0.4, moe_paged_stash_buffer_size_factor_cpu=r.choice([-1.0, 0.5, 2.0])),
    }


def draw_planned(r):
    return {
        **maybe(r, 0.7, planned_device_bytes=r.choice([1, 1 << 16, 1 << 20, 1 << 24])),
        **maybe(r, 0.7, min_offloaded_tensor_size=r.choice([0, 1024, 1 << 16])),
    }


def draw_balance(r):
    """Losses whose gradients read the router's scores."""
    return {"moe_router_load_balancing_type": r.choice(["aux_loss", "seq_aux_loss", "global_aux_loss"]), "moe_aux_loss_coeff": 0.01,
            **maybe(r, 0.3, moe_z_loss_coeff=0.001), **maybe(r, 0.4, moe_router_score_function="sigmoid")}


def draw_megatron_offload(r, system, moe, stash, layers):
    if system in ("te_v1", "te_v2"):
        return {"system": system, **draw_layer_engine(r, layers)}
    if system == "megatron":
        beside = {"moe_paged_stash": True, **draw_stash(r)} if stash else {}
        return {"system": system, **draw_fine_grained(r, moe and not stash), **beside}
    if system == "paged_stash":
        return {"system": system, **draw_stash(r)}
    if system == "planned":
        return {"system": system, **draw_planned(r)}
    return {"system": system, **maybe(r, 0.2, mode="as_released")}


def draw_precision(r):
    if r.random() > 0.2:
        return {}
    return {"fp8_format": r.choice(["e4m3", "hybrid"]),
            "fp8_recipe": r.choice(["delayed", "tensorwise", "blockwise", "mxfp8"]),
            **maybe(r, 0.3, fp8_param_gather=True), **maybe(r, 0.2, first_last_layers_bf16=True)}


def draw_graphs(r, moe):
    if r.random() > 0.25:
        return {}
    names = ["attn", "mlp"] + ["moe_router", "moe_preprocess", "moe"] * moe
    return {"cuda_graph_impl": r.choice(["local", "transformer_engine", "transformer_engine", "full_iteration"]),
            **maybe(r, 0.8, cuda_graph_modules=r.sample(names, r.randrange(1, 3))),
            **maybe(r, 0.5, check_for_nan_in_loss_and_grad=False)}


def draw_parallel(r, sizes, moe):
    tensor, context, pipeline, stages, expert, world = sizes
    return {
        "world_size": world,
        "tensor_model_parallel_size": tensor, "sequence_parallel": tensor > 1 and r.random() < 0.9,
        "context_parallel_size": context, "pipeline_model_parallel_size": pipeline,
        "expert_model_parallel_size": expert if moe else 1,
        **({"num_virtual_stages_per_pipeline_rank": stages} if stages > 1 else {}),
        **maybe(r, 0.4, expert_tensor_parallel_size=1),
        **maybe(r, 0.5, use_distributed_optimizer=True), **maybe(r, 0.2, overlap_grad_reduce=True),
        **maybe(r, 0.1, overlap_param_gather=True),
        **maybe(r, 0.1, use_megatron_fsdp=True,
                data_parallel_sharding_strategy=r.choice(["no_shard", "optim", "optim_grads", "optim_grads_params"])),
        **maybe(r, 0.4 if expert > 1 else 0.02, overlap_moe_expert_parallel_comm=True,
                ep_overlap_early_attn_memory_release=r.random() < 0.3),
    }


def draw_megatron(r, system):
    """Megatron-LM's modules, Transformer Engine's or its own."""
    tensor, context, pipeline = r.choice([1, 1, 2]), r.choice([1, 1, 1, 2]), r.choice([1, 1, 2, 4])
    pipeline = 1 if system.startswith("te_v") and r.random() < 0.8 else pipeline
    stages = r.choice([1, 2, 3]) if pipeline > 1 else 1
    stages = 2 if system == "megatron_pr1752" and pipeline > 1 else stages
    stash = system == "paged_stash" or (system == "megatron" and r.random() < 0.3)
    moe = stash or r.random() < 0.5
    expert = r.choice([1, 2, 2]) if moe else 1
    data = max(expert, r.choice([1, 2]))
    layers = pipeline * stages * r.choice([1, 1, 2])
    attention = draw_attention(r)
    model = {
        **draw_shape(r, layers), "implementation": r.choice(["te", "te", "te", "te", "local"]),
        "normalization": r.choice(["LayerNorm", "RMSNorm"]), "swiglu": r.random() < 0.7,
        "attention_dropout": r.choice([0.0, 0.1]), "hidden_dropout": r.choice([0.0, 0.1]),
        **attention, **(draw_experts(r, expert, stash) if moe else {}),
        **(draw_balance(r) if moe and system == "planned" else {}),
        **maybe(r, 0.15, mtp_num_layers=r.choice([1, 2])),
    }
    return {
        "model": model,
        "parallel": draw_parallel(r, (tensor, context, pipeline, stages, expert, tensor * context * pipeline * data), moe),
        "training": {
            **draw_batch(r, data, pipeline * r.choice([1, 1, 2])), **draw_precision(r), **draw_graphs(r, moe),
            "optimizer": r.choice(["adam", "adam", "adam", "sgd", "muon"]),
            **maybe(r, 0.1, delay_wgrad_compute=True), **maybe(r, 0.3, offload_optimizer_states=True),
            **maybe(r, 0.2, chunked_optimizer_state_offload=True, optimizer_state_offload_chunk_size_mb=r.choice([0, 1, 4]),
                    optimizer_state_offload_fraction=r.choice([0.3, 0.8, 1.0])),
            **maybe(r, 0.2, resumes=True, ckpt_fully_parallel_load=True),
            "attention_backend": r.choice(["auto", "auto", "flash", "fused", "unfused", "local"]),
        },
        "recompute": draw_recompute(r, moe, "multi_latent_attention" in attention),
        "offload": draw_megatron_offload(r, system, moe, stash, layers),
        **maybe(r, 0.3, software={"megatron_day": r.choice(["2025-06-01", "2026-03-01", "2026-06-01", "2026-08-20"])}),
    }


def draw_value(r, kind, choices, most):
    if kind == "FLAG":
        return r.choice([False, True])
    if kind == "INT":
        return r.choice([0, 1, 2, 3, 7, 64, 1 << 20, -1])
    if kind == "REAL":
        return r.choice([0.0, 0.5, 1.0, 1.5, -1.0, 64.0])
    words = re.findall(r'"([^"]*)"', choices) or ["x"]
    return r.choice(words) if kind in ("TEXT", "CHOICE") else r.sample(words, min(len(words), r.randrange(0, 3)))


def surprise(r, scenario):
    """A few keys that the scenario does not have, or with other values: mostly nonsense."""
    for section, name, kind, choices, most in r.sample(KEYS, r.randrange(1, 4)):
        if (section, name) not in (("offload", "system"), ("software", "container"), ("machine", "name")):
            scenario.setdefault(section, {})[name] = draw_value(r, kind, choices, most)


# ---- what is known not to go together ----


def mend_checkpoints(system, recompute, lora):
    """Checkpoints as an offload system of Hugging Face trainers needs them."""
    reentrant = {"axolotl_disk": True, "hidden_states_reentrant": True, "deepspeed": True, "hidden_states": False,
                 "selective_checkpointing": False}
    if system == "transformers":
        recompute.update(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    if system not in ("none", "transformers") or recompute.get("recompute_granularity") != "full":
        recompute.pop("every_n_layers", None)
    if recompute.get("every_n_layers", 1) != 1:
        recompute.pop("selective_checkpointing", None)
    if system in reentrant:
        recompute.update(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1,
                         use_reentrant=reentrant[system])
    if system == "veomni":
        recompute.pop("use_reentrant", None)
    if recompute.get("recompute_granularity") != "full" or system not in ("none", "planned"):
        recompute.pop("recompute_layers", None)
        recompute.pop("recompute_mlp_layers", None)
    if recompute.get("use_reentrant") or system not in ("none", "hidden_states", "planned", "selective_checkpointing"):
        recompute.pop("selective_checkpointing", None)
    if not recompute.get("selective_checkpointing") and system != "selective_checkpointing" or lora:
        recompute.pop("selective_checkpointing_save", None)
    if not set(recompute.get("selective_checkpointing_save", [])) - {"attention"} or system not in ("none", "planned"):
        recompute.pop("selective_checkpointing_mlp_layers", None)
    if not recompute.get("selective_checkpointing") or system not in ("none", "planned"):
        recompute.pop("selective_checkpointing_activation_layers", None)


def mend_hf(system, scenario):
    parallel, training, offload = (scenario[section] for section in ("parallel", "training", "offload"))
    mend_checkpoints(system, scenario["recompute"], scenario["lora"])
    if not scenario["lora"] or system in ("save_on_cpu", "verl", "veomni", "planned", "deepspeed", "none"):
        offload.pop("layer_offloading", None)
    if system in ("save_on_cpu", "layer_offloading") or "layer_offloading" in offload:
        parallel.pop("fsdp", None)
    if system == "veomni" and "fsdp" in parallel:
        parallel["fsdp"] = "fsdp2"
    if system != "selective_checkpointing" or "layer_offloading" in offload:
        offload.pop("selective_checkpointing_hidden_states", None)
    if scenario["lora"]:
        scenario["model"].pop("fused_projections", None)
    if "fsdp" in parallel:
        training.pop("keep_gradients", None)
        offload.pop("trl_params_registered", None)
    else:
        for key in [key for key in parallel if key.startswith("fsdp")]:
            del parallel[key]
    if parallel["world_size"] % parallel.get("fsdp_size", 1):
        parallel["fsdp_size"] = parallel["world_size"]


def mend_experts(model, parallel):
    if model["moe_router_topk"] == 1:
        model["moe_router_pre_softmax"] = True
    if model["moe_token_dispatcher_type"] == "allgather":
        model.pop("moe_shared_expert_overlap", None)
        parallel.pop("overlap_moe_expert_parallel_comm", None)
    if "moe_expert_capacity_factor" not in model:
        model.pop("moe_pad_expert_input_to_capacity", None)
    if parallel["tensor_model_parallel_size"] > 1:
        parallel["sequence_parallel"] = True
    if model.get("moe_flex_dispatcher_backend") == "deepep":
        model.pop("moe_expert_rank_capacity_factor", None)
        model.pop("moe_pad_expert_input_to_capacity", None)


def mend_overlap(scenario):
    model, parallel, training, recompute = (scenario[name] for name in ("model", "parallel", "training", "recompute"))
    virtual = parallel.get("num_virtual_stages_per_pipeline_rank", 1)
    possible = parallel["expert_model_parallel_size"] > 1 and (virtual > 1 or
                                                               parallel["pipeline_model_parallel_size"] == 1)
    if not possible:
        parallel.pop("overlap_moe_expert_parallel_comm", None)
    if not parallel.get("overlap_moe_expert_parallel_comm"):
        parallel.pop("ep_overlap_early_attn_memory_release", None)
        training.pop("delay_wgrad_compute", None)
        return
    training["bf16"] = not training.get("fp16")
    model.pop("moe_shared_expert_overlap", None)
    if model.get("mtp_num_layers", 0) > 1:
        model["mtp_num_layers"] = 1
    if recompute.get("recompute_granularity") == "full":
        recompute.clear()
    recompute["recompute_modules"] = [name for name in recompute.get("recompute_modules", []) if name != "moe"]


def mend_megatron_offload(r, system, scenario):
    model, parallel, training, offload = (scenario[name] for name in ("model", "parallel", "training", "offload"))
    if system in ("megatron", "megatron_pr1752", "paged_stash"):
        model["implementation"] = "te"
    if system.startswith("te_v"):
        scenario["recompute"] = {}
        training.pop("cuda_graph_impl", None)
        manual = offload.get("cpu_offloading_manual_synchronization")
        if not manual or system == "te_v1":
            parallel["pipeline_model_parallel_size"] = 1
            parallel.pop("num_virtual_stages_per_pipeline_rank", None)
        if model["num_layers"] == 1:
            model["num_layers"] = 3
        offload["cpu_offloading_num_layers"] = r.randrange(1, model["num_layers"])
    if system == "planned":
        training.pop("cuda_graph_impl", None)
        parallel.pop("overlap_moe_expert_parallel_comm", None)
    if system == "te_v1":
        for key in [key for key in offload if "manual" in key or "retain" in key or key[15:] in (
                "layers", "release_after", "reload_ahead", "stream")]:
            del offload[key]
    modules = offload.get("offload_modules", [])
    if "attn_proj" in modules and "core_attn" not in modules:
        modules.append("core_attn")
    fuser = model.get("use_transformer_engine_op_fuser")
    unfit = ("expert_fc1", "moe_act") if fuser else ("fused_group_mlp",)
    offload["offload_modules"] = [name for name in modules if name not in unfit] or ["core_attn"] * bool(modules)


def move_layer_inputs(scenario):
    """Where there are checkpoints of layers, their inputs are what fine-grained offloading may move."""
    training, offload = scenario["training"], scenario["offload"]
    scenario["recompute"]["recompute_method"] = "uniform"
    offload["offload_modules"] = ["layer_input"]
    if offload.get("mode") == "pr7575":
        offload["mode"] = "fixed"
    training.pop("cuda_graph_impl", None)


def mend_megatron(r, system, scenario):
    model, parallel, training, recompute = (scenario[name] for name in ("model", "parallel", "training", "recompute"))
    mend_megatron_offload(r, system, scenario)
    if "num_experts" in model:
        mend_experts(model, parallel)
    mend_overlap(scenario)
    if parallel["tensor_model_parallel_size"] == 1 or parallel["sequence_parallel"]:
        recompute.pop("distribute_saved_activations", None)
    if "overlap_param_gather" in parallel:
        parallel.update(overlap_grad_reduce=True, use_distributed_optimizer=True)
    if model["implementation"] == "local":
        training.pop("fp8_format", None)
    if "fp8_format" not in training:
        training.pop("fp8_param_gather", None)
    if parallel.get("use_megatron_fsdp") and training["optimizer"] == "muon":
        training["optimizer"] = "adam"
    if training.get("cuda_graph_impl") == "full_iteration":
        training.pop("cuda_graph_modules", None)
        training["check_for_nan_in_loss_and_grad"] = False
    if system == "megatron" and recompute.get("recompute_granularity") == "full" and r.random() < 0.7:
        move_layer_inputs(scenario)


def put_experts_on_host(r, scenario):
    """What OffloadingExpertsMLP and the optimizers need, nearly always; and its chunks."""
    model, parallel, training = scenario["model"], scenario["parallel"], scenario["training"]
    experts = model["num_experts"] // parallel["expert_model_parallel_size"]
    scenario["offload"].update(moe_use_offloading_experts=True, moe_offloading_num_chunks=r.choice([1, 2, experts]),
                               moe_offloading_num_stages=2, moe_paged_stash=False)
    model.update(implementation="te", moe_grouped_gemm=True, swiglu=True, add_bias_linear=False, moe_apply_probs_on_input=False)
    parallel.update(expert_tensor_parallel_size=1, overlap_moe_expert_parallel_comm=False, use_megatron_fsdp=False)
    training.update(bf16=True, fp16=False, fp8_format="", fp8_param_gather=False, delay_wgrad_compute=False, resumes=False, cuda_graph_impl="none",
                    use_precision_aware_optimizer=False, optimizer_cpu_offload=False,
                    optimizer=r.choice(["adam", "adam", "sgd"]))
    for name in ("moe_expert_rank_capacity_factor", "use_te_activation_func", "quick_geglu", "squared_relu"):
        model.pop(name, None)
    if parallel["expert_model_parallel_size"] == 1:
        parallel.update(use_distributed_optimizer=False, overlap_param_gather=False)
        training.update(chunked_optimizer_state_offload=False, offload_optimizer_states=False)


def draw(seed):
    r = random.Random(seed)
    name, _, host = SYSTEMS[seed % len(SYSTEMS)]
    on_hf = host == "HF" or (host == "ANY" and r.random() < 0.5)
    if r.random() < 0.02:
        on_hf = not on_hf
    scenario = draw_hf(r, name) if on_hf else draw_megatron(r, name)
    if r.random() < 0.9:
        mend_hf(name, scenario) if on_hf else mend_megatron(r, name, scenario)
    if not on_hf and scenario["model"].get("num_experts") and name != "paged_stash" and r.random() < 0.25:
        put_experts_on_host(r, scenario)
    if r.random() < 0.25:
        surprise(r, scenario)
    if not on_hf and scenario["parallel"].get("sequence_parallel") and r.random() < 0.5:
        scenario["parallel"].update(tp_comm_overlap=True, tp_comm_overlap_rs_method=r.choice(["pipeline", "ring_exchange"]))
    scenario["machine"] = {"name": r.choice(["H100-SXM", "H200-SXM", "A100-SXM-PCIe4", "ideal"])}
    return scenario


# ---- what must hold ----


def check_saving(rank, baseline):
    """Tiny models may lose memory, or save more than the groups: copies and gradients weigh as much as these."""
    saving, theory = rank["simulated_saving_bytes"], rank["theoretical_saving_bytes"]
    assert saving == baseline["steady_allocated_peak_bytes"] - rank["steady_allocated_peak_bytes"]
    assert saving < baseline["steady_allocated_peak_bytes"]
    assert (rank["saving_ratio"] is None) == (theory <= 0)
    assert theory < NOTICEABLE or rank["saving_ratio"] <= 3


def check_times(rank):
    times = [rank[key] for key in ("compute_busy_s", "exposed_d2h_s", "exposed_h2d_s", "bubble_s")]
    assert min(times) >= 0
    assert sum(times) <= rank["step_time_s"] + 1e-9


def check_rank(rank, baseline):
    static, steady = rank["static_bytes"], rank["steady_allocated_peak_bytes"]
    assert 0 <= static <= steady <= rank["allocated_peak_bytes"]
    assert 0 <= rank["requested_peak_bytes"] <= steady
    if rank["fits"]:
        assert rank["live_peak_bytes"] <= rank["reserved_peak_bytes"]
    check_saving(rank, baseline)
    check_times(rank)
    assert 0 <= rank["offloaded_groups"] <= rank["groups"]
    assert all(size >= 0 for size in rank["peak_by_class"].values())


def check(prediction):
    baseline, result = prediction["baseline"]["ranks"], prediction["result"]["ranks"]
    system = prediction["scenario"]["offload"]["system"]
    for without, rank in zip(baseline, result, strict=True):
        check_rank(rank, without)
    training = prediction["scenario"]["training"]
    moves = training["offload_optimizer_states"] or training["chunked_optimizer_state_offload"] or \
        prediction["scenario"]["offload"]["moe_use_offloading_experts"]
    if system == "none" and not moves:
        for without, rank in zip(baseline, result, strict=True):
            assert rank["simulated_saving_bytes"] == rank["d2h_bytes"] == rank["h2d_bytes"] == 0
        assert prediction["overhead"] == 0


def check_plan(offsim, path):
    """Read back, a plan is checked: what is used is alive, what is sent is received."""
    for options in ((), ("--iteration", "warmup"), ("--without-offload",)):
        check_one_plan(offsim, offsim("plan", path, *options, check=0).stdout)


def check_one_plan(offsim, plan):
    if len(plan) < LONG_PLAN:
        assert offsim("plan", "--plan", "-", stdin=plan, check=0).stdout == plan


def check_scenario(offsim, path):
    run = offsim("predict", path, "--json", "--brief", limit_s=LIMIT_S)
    if run.status in (2, 3):  # 3: a step with too many ops
        assert all(map(PLACED.match, errors_of(run, run.status))), run.stderr
        return
    assert run.status == 0, run.stderr
    check(json.loads(run.stdout))
    check_plan(offsim, path)


def test_any_combination(seed, offsim, tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(draw(seed), indent=1))
    check_scenario(offsim, path)
