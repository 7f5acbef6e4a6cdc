/*
 * model.implementation hf: which parts of it are modelled, and which offload systems work on whose
 * modules.
 * Sources: transformers configuration_llama.py, configuration_qwen3.py, modeling_layers.py; the
 * table of offload systems.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/config/validate/validate.h"

static bool check_system(const settings *s, diag *d)
{
  const offload_system *system = &offload_systems[s->offload.system];
  bool hf = uses_hf(s);
  bool fits =
      system->implementation == OFFLOAD_ON_ANY || (system->implementation == OFFLOAD_ON_HF) == hf;
  const char *needed = system->implementation == OFFLOAD_ON_HF ? "hf" : "te or local";

  return need(s, d, fits, KEY_offload_system, KEY_model_implementation,
              "offload system %s needs model.implementation %s; it is %s", system->name, needed,
              chosen_word(s, KEY_model_implementation));
}

/* Context parallelism of these models is Ulysses: heads exchanged for positions around flash
 * attention (verl/models/transformers/monkey_patch.py). FSDP shards over its ranks too. */
static bool check_ulysses(const settings *s, diag *d)
{
  setting_key key = KEY_parallel_context_parallel_size, type = KEY_parallel_cp_comm_type;
  const choice_list *types = &s->parallel.cp_comm_type;
  int64_t ranks = s->parallel.context_parallel_size, heads = s->model.num_attention_heads;
  int64_t key_heads = s->model.num_query_groups;

  if (ranks == 1) {
    return true;
  }
  return need(s, d, types->count == 1 && types->items[0] == CP_A2A, type, key,
              "with model.implementation hf cp_comm_type must be a2a: Ulysses sequence "
              "parallelism") &&
         need(s, d, s->parallel.fsdp != FSDP_NONE, key, KEY_parallel_fsdp,
              "context_parallel_size with model.implementation hf needs parallel.fsdp") &&
         need(s, d, s->model.attn_implementation == ATTN_FLASH_2, KEY_model_attn_implementation,
              key,
              "context_parallel_size with model.implementation hf needs attn_implementation "
              "flash_attention_2") &&
         need(s, d, heads % ranks == 0 && (key_heads % ranks == 0 || ranks % key_heads == 0), key,
              key,
              "%" PRId64 " heads of queries and %" PRId64 " of keys are split over %" PRId64
              " ranks (context_parallel_size); it must divide the former, and divide or be a "
              "multiple of the latter",
              heads, key_heads, ranks);
}

static bool check_parallel(const settings *s, diag *d)
{
  static const setting_key keys[] = { KEY_parallel_tensor_model_parallel_size,
                                      KEY_parallel_pipeline_model_parallel_size,
                                      KEY_parallel_expert_model_parallel_size };
  const int64_t sizes[] = { s->parallel.tensor_model_parallel_size,
                            s->parallel.pipeline_model_parallel_size,
                            s->parallel.expert_model_parallel_size };

  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (!need(s, d, sizes[i] == 1, keys[i], KEY_model_implementation,
              "%s is %" PRId64 "; with model.implementation hf it must be 1",
              key_rows[keys[i]].name, sizes[i])) {
      return false;
    }
  }
  return check_ulysses(s, d) &&
         need(s, d, !s->parallel.use_megatron_fsdp, KEY_parallel_use_megatron_fsdp,
              KEY_model_implementation,
              "use_megatron_fsdp does not work with model.implementation hf, which has "
              "parallel.fsdp");
}

static bool has_positions(const settings *s)
{
  position_embedding_type_choice type = s->model.position_embedding_type;

  return type == POSITIONS_ROPE || type == POSITIONS_MROPE || type == POSITIONS_YARN ||
         type == POSITIONS_NONE;
}

static bool rotates_pairs(const settings *s)
{
  int64_t columns = (int64_t)((double)s->model.kv_channels * s->model.rotary_percent);
  return s->model.position_embedding_type == POSITIONS_NONE || (columns > 0 && columns % 2 == 0);
}

/* A key whose value selects a part that the models do not have, or that is not modelled. */
static bool check_model(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  const struct {
    bool holds;
    setting_key key;
    const char *must;
  } rows[] = {
    { m->num_experts == 0 || m->moe_class != MOE_SPARSE ||
          m->moe_router_score_function == SCORES_SOFTMAX,
      KEY_model_moe_router_score_function, "must be softmax, unless moe_class is deepseek_v3" },
    { m->num_experts == 0 || m->moe_class != MOE_SPARSE ||
          (!m->moe_router_enable_expert_bias && m->moe_router_num_groups == 0),
      KEY_model_moe_router_num_groups,
      "must be 0, and moe_router_enable_expert_bias false, where moe_class is sparse" },
    { !m->moe_shared_expert_gate || m->moe_class == MOE_SPARSE, KEY_model_moe_shared_expert_gate,
      "must be false unless moe_class is sparse" },
    { !m->attention_sinks || m->attn_implementation != ATTN_SDPA, KEY_model_attn_implementation,
      "must be eager or flash_attention_2 with attention_sinks: transformers has no sdpa for "
      "them" },
    { !m->attention_sinks || s->parallel.context_parallel_size == 1, KEY_model_attention_sinks,
      "must be false with context_parallel_size above 1" },
    { !m->multi_latent_attention || !m->fused_projections, KEY_model_multi_latent_attention,
      "must be false with fused_projections" },
    { !m->multi_latent_attention || s->parallel.context_parallel_size == 1,
      KEY_model_multi_latent_attention, "must be false with context_parallel_size above 1" },
    { !m->multi_latent_attention || !s->lora.lora_qkv_kernel, KEY_lora_lora_qkv_kernel,
      "must be false with multi_latent_attention, which has no such projections" },
    { m->linear_num_value_heads % m->linear_num_key_heads == 0, KEY_model_linear_num_value_heads,
      "must be a multiple of linear_num_key_heads" },
    { !m->linear_fused_projections || m->linear_num_key_heads > 1, KEY_model_linear_num_key_heads,
      "must be above 1 with linear_fused_projections" },
    { !m->attention_output_gate || !(m->fused_projections || m->fused_qkv_sliced),
      KEY_model_attention_output_gate, "must be false with fused_projections or fused_qkv_sliced" },
    { !m->attention_output_gate || !m->multi_latent_attention, KEY_model_attention_output_gate,
      "must be false with multi_latent_attention" },
    { m->moe_class != MOE_LLAMA4 || m->moe_shared_expert_intermediate_size > 0,
      KEY_model_moe_shared_expert_intermediate_size, "must be above 0 where moe_class is llama4" },
    { !m->linearized_experts || m->moe_class == MOE_LLAMA4, KEY_model_linearized_experts,
      "must be false unless moe_class is llama4" },
    { !m->qk_l2_norm || m->attention_class == ATTENTION_LLAMA4, KEY_model_qk_l2_norm,
      "must be false unless attention_class is llama4" },
    { !m->attn_temperature_tuning || m->attention_class == ATTENTION_LLAMA4,
      KEY_model_attn_temperature_tuning, "must be false unless attention_class is llama4" },
    { m->attention_class != ATTENTION_LLAMA4 || m->attn_implementation != ATTN_FLASH_2,
      KEY_model_attn_implementation,
      "must be flex_attention, sdpa or eager where attention_class is llama4: transformers has no "
      "flash attention for it" },
    { m->attention_class != ATTENTION_LLAMA4 || m->rotary_form == ROTARY_COMPLEX,
      KEY_model_rotary_form, "must be complex where attention_class is llama4" },
    { m->attention_class != ATTENTION_LLAMA4 || !(m->fused_projections || m->fused_qkv_sliced),
      KEY_model_attention_class, "must be llama with fused_projections or fused_qkv_sliced" },
    { m->attention_class != ATTENTION_LLAMA4 ||
          !(m->qk_layernorm || m->attention_output_gate || m->attention_sinks ||
            m->query_position_scale || m->multi_latent_attention),
      KEY_model_attention_class,
      "must be llama with qk_layernorm, attention_output_gate, attention_sinks, "
      "query_position_scale or multi_latent_attention" },
    { m->num_experts == 0 || s->parallel.fsdp == FSDP_NONE || m->linearized_experts ||
          m->num_experts % s->parallel.world_size == 0,
      KEY_model_num_experts,
      "must be a multiple of the GPUs with parallel.fsdp: uneven shards of experts are not "
      "modelled" },
    { m->mtp_num_layers == 0, KEY_model_mtp_num_layers, "must be 0" },
    { !s->parallel.use_distributed_optimizer, KEY_parallel_use_distributed_optimizer,
      "must be false: parallel.fsdp shards optimizer states" },
    { !s->training.optimizer_cpu_offload || s->parallel.fsdp != FSDP_NONE,
      KEY_training_optimizer_cpu_offload, "must be false without parallel.fsdp" },
    { !s->training.overlap_cpu_optimizer_d2h_h2d, KEY_training_overlap_cpu_optimizer_d2h_h2d,
      "must be false: copies and step of an optimizer on the host are not modelled" },
    { !s->training.resumes, KEY_training_resumes,
      "must be false: loading a checkpoint is modelled for Megatron-LM alone" },
    { !s->training.offload_optimizer_states, KEY_training_offload_optimizer_states,
      "must be false: only Megatron-LM moves optimizer states" },
    { !s->training.chunked_optimizer_state_offload, KEY_training_chunked_optimizer_state_offload,
      "must be false: only Megatron-LM moves optimizer states" },
    { !s->offload.moe_use_offloading_experts, KEY_offload_moe_use_offloading_experts,
      "must be false: only Megatron-LM's experts can be on the host" },
    { m->normalization == NORM_RMS || !m->swiglu, KEY_model_normalization,
      "must be RMSNorm: models with LayerNorm and swiglu are not modelled" },
    { m->swiglu || m->hidden_act != HIDDEN_ACT_SILU, KEY_model_swiglu,
      "must be true where hidden_act is silu" },
    { !m->squared_relu, KEY_model_squared_relu, "must be false" },
    { !m->quick_geglu, KEY_model_quick_geglu, "must be false" },
    { has_positions(s), KEY_model_position_embedding_type, "must be rope, mrope, yarn or none" },
    { rotates_pairs(s), KEY_model_rotary_percent,
      "must leave an even number of columns of a head to rotate" },
    { m->attn_logit_softcapping == 0 || m->attn_implementation != ATTN_SDPA,
      KEY_model_attn_implementation,
      "must be eager or flash_attention_2 where attention has attn_logit_softcapping: sdpa cannot "
      "do that" },
    { (m->final_logit_softcapping == 0 && m->logits_scaling == 1) ||
          !m->liger_fused_linear_cross_entropy,
      KEY_model_liger_fused_linear_cross_entropy,
      "must be false with final_logit_softcapping or logits_scaling: that is not modelled" },
    { m->swiglu || !m->liger_glu_activation, KEY_model_liger_glu_activation,
      "must be false without swiglu" },
    { m->logits_scaling > 0, KEY_model_logits_scaling, "must be above 0" },
    { m->sliding_window == 0 || m->position_embedding_type != POSITIONS_NONE ||
          m->rope_local_base_freq == 0,
      KEY_model_rope_local_base_freq, "must be 0 without rotary embedding" },
    { !m->fp32_residual_connection, KEY_model_fp32_residual_connection, "must be false" },
    { s->training.attention_backend == BACKEND_AUTO, KEY_training_attention_backend,
      "must be auto: attn_implementation says what computes attention" },
    { !s->training.use_flash_attn, KEY_training_use_flash_attn,
      "must be false: attn_implementation says what computes attention" },
    { !m->cross_entropy_loss_fusion, KEY_model_cross_entropy_loss_fusion,
      "must be false: liger_fused_linear_cross_entropy fuses the loss of transformers" },
    { !m->use_transformer_engine_op_fuser, KEY_model_use_transformer_engine_op_fuser,
      "must be false" },
    { !s->parallel.tp_comm_overlap, KEY_parallel_tp_comm_overlap, "must be false" },
    { s->training.fp8_format == FP8_FORMAT_NONE, KEY_training_fp8_format, "must be empty" },
    { s->training.cuda_graph_impl == GRAPHS_NONE, KEY_training_cuda_graph_impl, "must be none" },
    { !m->fused_log_probs || s->training.loss == LOSS_LOG_PROBS, KEY_model_fused_log_probs,
      "needs training.loss log_probs" },
    { s->training.entropy == ENTROPY_NONE || s->training.loss == LOSS_LOG_PROBS,
      KEY_training_entropy, "needs training.loss log_probs" },
    { !m->liger_fused_linear_cross_entropy || s->training.loss != LOSS_LOG_PROBS,
      KEY_model_liger_fused_linear_cross_entropy, "needs training.loss causal_lm" },
    { s->lora.adapter == ADAPTER_NONE || !m->fused_projections, KEY_model_fused_projections,
      "must be false with lora.adapter" },
    { m->fused_projections + m->fused_qkv_sliced < 2, KEY_model_fused_qkv_sliced,
      "must be false with fused_projections" },
    { m->fused_projections == 0 || m->qk_norm != QK_NORM_WHOLE, KEY_model_qk_norm,
      "must not be whole with fused_projections" },
  };

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (!need(s, d, rows[i].holds, rows[i].key, KEY_model_implementation,
              "with model.implementation hf %s %s", key_rows[rows[i].key].name, rows[i].must)) {
      return false;
    }
  }
  return true;
}

/* torch.utils.checkpoint around each decoder layer. */
static bool check_recompute(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  setting_key granularity = KEY_recompute_recompute_granularity;
  bool full = r->recompute_granularity == GRANULARITY_FULL;
  bool of_transformers =
      s->offload.system == SYSTEM_none || s->offload.system == SYSTEM_transformers;
  bool by_tensor = s->offload.system == SYSTEM_none || s->offload.system == SYSTEM_planned;
  bool every_layer = strcmp(r->recompute_layers, "1") == 0;
  bool whole = *r->recompute_mlp_layers == '\0';
  setting_key every_n = KEY_recompute_every_n_layers, layers = KEY_recompute_recompute_layers;
  setting_key mlp = KEY_recompute_recompute_mlp_layers;

  return need(s, d, r->recompute_granularity != GRANULARITY_SELECTIVE, granularity,
              KEY_model_implementation,
              "with model.implementation hf recompute_granularity must be full or empty") &&
         need(s, d, !full || r->recompute_method == METHOD_UNIFORM, KEY_recompute_recompute_method,
              granularity, "with model.implementation hf recompute_method must be uniform") &&
         need(s, d, !full || r->recompute_num_layers == 1, KEY_recompute_recompute_num_layers,
              granularity,
              "with model.implementation hf recompute_num_layers must be 1: each layer is a "
              "checkpoint") &&
         need(s, d, every_layer || full, layers, granularity,
              "recompute_layers needs recompute_granularity full") &&
         need(s, d, every_layer || by_tensor, layers, KEY_offload_system,
              "recompute_layers works with offload systems none and planned; it is %s",
              chosen_word(s, KEY_offload_system)) &&
         need(s, d, whole || full, mlp, granularity,
              "recompute_mlp_layers needs recompute_granularity full") &&
         need(s, d, whole || by_tensor, mlp, KEY_offload_system,
              "recompute_mlp_layers works with offload systems none and planned; it is %s",
              chosen_word(s, KEY_offload_system)) &&
         need(s, d, r->every_n_layers == 1 || full, every_n, granularity,
              "every_n_layers needs recompute_granularity full") &&
         need(s, d, r->every_n_layers == 1 || of_transformers, every_n, KEY_offload_system,
              "every_n_layers belongs to the checkpoints of transformers; it does not work with "
              "offload system %s",
              chosen_word(s, KEY_offload_system)) &&
         need(s, d, r->every_n_layers == 1 || !r->selective_checkpointing, every_n,
              KEY_recompute_selective_checkpointing,
              "every_n_layers with selective_checkpointing is not modelled");
}

/* Keys that nothing reads without Hugging Face models: they would have no effect. */
static bool check_keys_of_hf(const settings *s, diag *d)
{
  const struct model_settings *m = &s->model;
  const struct {
    bool asked;
    setting_key key;
  } rows[] = {
    { m->attn_implementation != ATTN_SDPA, KEY_model_attn_implementation },
    { s->lora.adapter != ADAPTER_NONE, KEY_lora_adapter },
    { s->lora.load_in_8bit, KEY_lora_load_in_8bit },
    { s->recompute.every_n_layers != 1, KEY_recompute_every_n_layers },
    { strcmp(s->recompute.recompute_layers, "1") != 0, KEY_recompute_recompute_layers },
    { *s->recompute.recompute_mlp_layers != '\0', KEY_recompute_recompute_mlp_layers },
    { *s->recompute.selective_checkpointing_mlp_layers != '\0',
      KEY_recompute_selective_checkpointing_mlp_layers },
    { *s->recompute.selective_checkpointing_activation_layers != '\0',
      KEY_recompute_selective_checkpointing_activation_layers },
    { s->training.keep_gradients, KEY_training_keep_gradients },
    { s->training.loss != LOSS_CAUSAL_LM, KEY_training_loss },
    { m->fused_projections, KEY_model_fused_projections },
    { m->hidden_act != HIDDEN_ACT_SILU, KEY_model_hidden_act },
    { m->fused_gate_up, KEY_model_fused_gate_up },
    { m->fused_qkv_sliced, KEY_model_fused_qkv_sliced },
    { m->layer_norms != LAYER_NORMS_PRE, KEY_model_layer_norms },
    { m->norm_gain_in_fp32, KEY_model_norm_gain_in_fp32 },
    { m->qk_norm != QK_NORM_BY_HEAD, KEY_model_qk_norm },
    { m->add_attention_output_bias, KEY_model_add_attention_output_bias },
    { m->embedding_multiplier != 1, KEY_model_embedding_multiplier },
    { m->embedding_dropout != 0, KEY_model_embedding_dropout },
    { m->residual_multiplier != 1, KEY_model_residual_multiplier },
    { m->attention_multiplier != 0, KEY_model_attention_multiplier },
    { m->logits_scaling != 1, KEY_model_logits_scaling },
    { m->attn_logit_softcapping != 0, KEY_model_attn_logit_softcapping },
    { m->final_logit_softcapping != 0, KEY_model_final_logit_softcapping },
    { strcmp(m->rope_layers, "1") != 0, KEY_model_rope_layers },
    { m->rope_local_base_freq != 0, KEY_model_rope_local_base_freq },
    { m->query_position_scale, KEY_model_query_position_scale },
    { m->attention_class != ATTENTION_LLAMA, KEY_model_attention_class },
    { m->attn_temperature_tuning, KEY_model_attn_temperature_tuning },
    { m->linearized_experts, KEY_model_linearized_experts },
    { m->rotary_tables_fp32, KEY_model_rotary_tables_fp32 },
    { m->rotary_sliced, KEY_model_rotary_sliced },
    { m->attention_sinks, KEY_model_attention_sinks },
    { m->linear_num_value_heads > 0, KEY_model_linear_num_value_heads },
    { m->attention_output_gate, KEY_model_attention_output_gate },
    { m->liger_glu_activation, KEY_model_liger_glu_activation },
    { m->fused_log_probs, KEY_model_fused_log_probs },
    { s->training.entropy != ENTROPY_NONE, KEY_training_entropy },
    { m->liger_fused_linear_cross_entropy, KEY_model_liger_fused_linear_cross_entropy },
  };

  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (!need(s, d, uses_hf(s) || !rows[i].asked, rows[i].key, KEY_model_implementation,
              "%s needs model.implementation hf; it is %s", key_rows[rows[i].key].name,
              chosen_word(s, KEY_model_implementation))) {
      return false;
    }
  }
  return true;
}

/* bitsandbytes' weights in bytes. The flat parameters of FSDP's first version have one type, Axolotl's
 * kernels know 4 and 16 bits. */
static bool check_8bit(const settings *s, diag *d)
{
  const struct lora_settings *l = &s->lora;
  setting_key key = KEY_lora_load_in_8bit;
  bool fused = l->lora_qkv_kernel || l->lora_o_kernel || l->lora_mlp_kernel;

  return !l->load_in_8bit || (need(s, d, l->adapter == ADAPTER_LORA, key, KEY_lora_adapter,
                                   "load_in_8bit needs lora.adapter lora; it is \"%s\"",
                                   chosen_word(s, KEY_lora_adapter)) &&
                              need(s, d, !fused, key, KEY_lora_lora_qkv_kernel,
                                   "load_in_8bit does not work with lora_qkv_kernel, lora_o_kernel "
                                   "or lora_mlp_kernel") &&
                              need(s, d, s->parallel.fsdp != FSDP_1, key, KEY_parallel_fsdp,
                                   "load_in_8bit does not work with fsdp; it works with fsdp2"));
}

bool validate_hf(const settings *s, diag *d)
{
  if (!check_system(s, d) || !check_keys_of_hf(s, d)) {
    return false;
  }
  return !uses_hf(s) ||
         (check_parallel(s, d) && check_model(s, d) && check_recompute(s, d) && check_8bit(s, d));
}
