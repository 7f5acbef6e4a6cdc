/*
 * Keys that serve another one, which is off: a note says that they change nothing. As in Megatron-LM, an
 * fp8 recipe alone turns no fp8 on. Who gives the other key too, even to turn it off, knows.
 */
#include "sim/config/resolve/steps.h"

typedef struct idle_keys {
  setting_key of;
  bool is_on;
  setting_key keys[32]; /* ends with 0: the first key of all serves none */
} idle_keys;

static const char *off_word(const settings *s, setting_key of)
{
  if (key_rows[of].type == KEY_TYPE_FLAG) return "false";
  const char *word = key_rows[of].type == KEY_TYPE_CHOICE ? chosen_word(s, of) : "";
  return *word == '\0' ? "not given" : word;
}

static bool is_either(system_choice system, system_choice a, system_choice b)
{
  return system == a || system == b;
}

static void note_row(const settings *s, const idle_keys *row, arena *a, diag *d)
{
  const char *names = NULL;
  setting_key first = 0;
  bool several = false;

  for (const setting_key *key = row->keys; *key != 0; key++) {
    if (!s->given[*key]) continue;
    several = names != NULL;
    if (names == NULL) first = *key;
    names =
        names == NULL ? key_rows[*key].name : arena_printf(a, "%s, %s", names, key_rows[*key].name);
  }
  if (names == NULL) return;
  diag_note(d, s->at[first], "%s %s no effect: %s is %s", names, several ? "have" : "has",
            key_rows[row->of].name, off_word(s, row->of));
}

void note_idle(const settings *s, arena *a, diag *d)
{
  const struct offload_settings *o = &s->offload;
  const struct training_settings *t = &s->training;
  bool fine_grained = is_either(o->system, SYSTEM_megatron, SYSTEM_megatron_pr1752);
  const idle_keys rows[] = {
    { KEY_recompute_recompute_granularity,
      s->recompute.recompute_granularity != GRANULARITY_NONE,
      { KEY_recompute_recompute_method, KEY_recompute_recompute_num_layers,
        KEY_recompute_recompute_modules } },
    { KEY_training_fp8_format,
      t->fp8_format != FP8_FORMAT_NONE,
      { KEY_training_fp8_recipe, KEY_training_first_last_layers_bf16 } },
    { KEY_training_first_last_layers_bf16,
      t->first_last_layers_bf16,
      { KEY_training_num_layers_at_start_in_bf16, KEY_training_num_layers_at_end_in_bf16 } },
    { KEY_training_cuda_graph_impl,
      t->cuda_graph_impl != GRAPHS_NONE,
      { KEY_training_cuda_graph_modules, KEY_training_cuda_graph_warmup_steps,
        KEY_offload_delay_offload_until_cuda_graph } },
    { KEY_training_defer_embedding_wgrad_compute,
      t->defer_embedding_wgrad_compute,
      { KEY_training_wgrad_deferral_limit } },
    { KEY_model_num_experts,
      s->model.num_experts > 0,
      { KEY_model_moe_layer_freq,
        KEY_model_moe_shared_expert_intermediate_size,
        KEY_model_moe_shared_expert_gate,
        KEY_model_moe_shared_expert_overlap,
        KEY_model_moe_grouped_gemm,
        KEY_model_moe_router_topk,
        KEY_model_moe_router_load_balancing_type,
        KEY_model_moe_aux_loss_coeff,
        KEY_model_moe_z_loss_coeff,
        KEY_model_moe_router_score_function,
        KEY_model_moe_router_pre_softmax,
        KEY_model_moe_router_num_groups,
        KEY_model_moe_router_group_topk,
        KEY_model_moe_router_dtype,
        KEY_model_moe_router_enable_expert_bias,
        KEY_model_moe_router_force_load_balancing,
        KEY_model_moe_router_fusion,
        KEY_model_moe_permute_fusion,
        KEY_model_moe_token_dispatcher_type,
        KEY_model_moe_expert_capacity_factor,
        KEY_model_moe_pad_expert_input_to_capacity,
        KEY_model_moe_expert_rank_capacity_factor,
        KEY_model_moe_use_grouped_tensor,
        KEY_model_moe_router_padding_for_quantization,
        KEY_model_moe_apply_probs_on_input,
        KEY_model_moe_imbalance } },
    { KEY_model_moe_token_dispatcher_type,
      s->model.moe_token_dispatcher_type == DISPATCHER_FLEX,
      { KEY_model_moe_flex_dispatcher_backend } },
    { KEY_training_optimizer_cpu_offload,
      t->optimizer_cpu_offload,
      { KEY_training_optimizer_offload_fraction, KEY_training_overlap_cpu_optimizer_d2h_h2d } },
    { KEY_training_chunked_optimizer_state_offload,
      t->chunked_optimizer_state_offload,
      { KEY_training_optimizer_state_offload_fraction,
        KEY_training_optimizer_state_offload_chunk_size_mb } },
    { KEY_model_multi_latent_attention,
      s->model.multi_latent_attention,
      { KEY_model_q_lora_rank, KEY_model_kv_lora_rank } },
    { KEY_lora_adapter,
      s->lora.adapter != ADAPTER_NONE,
      { KEY_lora_lora_r, KEY_lora_lora_alpha, KEY_lora_lora_dropout, KEY_lora_lora_target_modules,
        KEY_lora_lora_qkv_kernel, KEY_lora_lora_o_kernel, KEY_lora_lora_mlp_kernel } },
    { KEY_parallel_fsdp,
      s->parallel.fsdp != FSDP_NONE,
      { KEY_parallel_fsdp_size, KEY_parallel_fsdp_model_dtype, KEY_parallel_fsdp_reduce_dtype,
        KEY_parallel_fsdp_reshard_after_forward, KEY_parallel_fsdp_forward_prefetch,
        KEY_parallel_fsdp_wrap_embedding } },
    { KEY_parallel_use_megatron_fsdp,
      s->parallel.use_megatron_fsdp,
      { KEY_parallel_data_parallel_sharding_strategy } },
    { KEY_offload_system,
      fine_grained,
      { KEY_offload_activation_offload_fraction, KEY_offload_delta_offload_bytes_across_pp_ranks,
        KEY_offload_fine_grained_offloading_max_inflight_offloads } },
    { KEY_offload_system,
      is_either(o->system, SYSTEM_te_v1, SYSTEM_te_v2),
      { KEY_offload_cpu_offloading_weights, KEY_offload_cpu_offloading_double_buffering,
        KEY_offload_cpu_offloading_release_after, KEY_offload_cpu_offloading_reload_ahead } },
    { KEY_offload_system, o->system == SYSTEM_planned, { KEY_offload_planned_device_bytes } },
    { KEY_offload_system,
      is_either(o->system, SYSTEM_trl, SYSTEM_trl_sync),
      { KEY_offload_max_fwd_stash_size } },
    { KEY_offload_system, o->system == SYSTEM_veomni, { KEY_offload_activation_gpu_limit } },
    { KEY_offload_moe_use_offloading_experts,
      o->moe_use_offloading_experts,
      { KEY_offload_moe_offloading_num_chunks, KEY_offload_moe_offloading_num_stages } },
  };

  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const idle_keys *row = &rows[i];
    if (!row->is_on && !s->given[row->of]) note_row(s, row, a, d);
  }
}
