/* Settings that can change memory or time and do not: not modelled, or turned off. A note for each. */
#include "sim/config/resolve/steps.h"

/* Where sim/model/megatron/experts.c finds something to stash. */
static bool marks_stash(const settings *s)
{
  return s->model.use_transformer_engine_op_fuser && s->training.fp8_format != FP8_FORMAT_NONE &&
         s->training.fp8_recipe == FP8_RECIPE_MXFP8 &&
         s->model.moe_token_dispatcher_type == DISPATCHER_FLEX;
}

static void note(const settings *s, diag *d, bool applies, setting_key key, const char *what)
{
  if (applies) {
    diag_note(d, s->at[key], "%s.%s: %s", key_rows[key].section, key_rows[key].name, what);
  }
}

void note_unmodelled(const settings *s, diag *d)
{
  const struct parallel_settings *p = &s->parallel;
  const struct training_settings *t = &s->training;
  bool flex = s->model.attn_implementation == ATTN_FLEX;

  note(s, d, p->context_parallel_size > 1 && has_choice(&p->cp_comm_type, CP_A2A_P2P),
       KEY_parallel_cp_comm_type, "a2a+p2p is not modelled; predicted as p2p");
  note(s, d, p->tp_comm_overlap && s->model.multi_latent_attention, KEY_parallel_tp_comm_overlap,
       "the first projections of multi_latent_attention turn it off for all layers, as in "
       "Megatron-LM; its user buffers remain");
  note(s, d, s->model.position_embedding_type == POSITIONS_RELATIVE,
       KEY_model_position_embedding_type, "the bias of relative positions is not modelled");
  note(s, d,
       uses_hf(s) && s->model.num_experts > 0 && !s->model.linearized_experts &&
           s->lora.adapter != ADAPTER_NONE,
       KEY_lora_adapter,
       "experts are no linears: they get no adapter, and qlora does not quantise them");
  note(s, d, s->model.linear_num_value_heads > 0 && p->context_parallel_size > 1,
       KEY_model_linear_num_value_heads,
       "each rank's own positions; the states that ranks exchange, some MB a layer, are left out");
  note(s, d, uses_hf(s) && flex, KEY_model_attn_implementation,
       "flex_attention is not modelled; predicted with the tensors and the time of "
       "flash_attention_2");
  note(s, d, s->derived.window_is_shorter && flex && s->model.attention_class == ATTENTION_LLAMA4,
       s->derived.window_key, "attention is timed as if every query saw all keys before it");
  note(s, d,
       s->derived.window_keys > 0 && s->model.transformer_impl == TRANSFORMER_LOCAL &&
           !uses_hf(s) && !t->use_flash_attn,
       s->derived.window_key,
       "the mask of a window is not modelled with Megatron-LM's own attention");
  note(s, d,
       s->model.activation_func_clamp_value > 0 &&
           (s->model.num_experts == 0 || !(s->model.swiglu || s->model.quick_geglu)),
       KEY_model_activation_func_clamp_value,
       "only clamps of experts' gated activations are modelled; predicted without it");
  note(s, d, t->fp8_format != FP8_FORMAT_NONE && t->fp8_recipe == FP8_RECIPE_CUSTOM,
       KEY_training_fp8_recipe, "a custom recipe is not modelled; predicted as tensorwise");
  note(
      s, d, t->cuda_graph_impl == GRAPHS_TE, KEY_training_cuda_graph_impl,
      "what graphs allocate is in a pool of their own, which PyTorch counts as reserved but not as "
      "allocated; that is not modelled, so that allocated is too high");
  note(s, d, t->cuda_graph_impl == GRAPHS_LOCAL || t->cuda_graph_impl == GRAPHS_FULL_ITERATION,
       KEY_training_cuda_graph_impl,
       "buffers that its graphs keep, and their own pool, are not modelled");
  note(s, d, s->offload.moe_paged_stash && !stashes_experts(s), KEY_offload_moe_paged_stash,
       "the stash beside another offload system is not modelled; predicted without it");
  note(s, d, stashes_experts(s) && !marks_stash(s), KEY_offload_moe_paged_stash,
       "nothing is stashed: Transformer Engine marks tensors only in its fused grouped MLP, which "
       "needs use_transformer_engine_op_fuser, fp8_recipe mxfp8 and the flex dispatcher");
  note(s, d, has_choice(&s->offload.offload_modules, OFFLOAD_GDP_QKV), KEY_offload_offload_modules,
       "gdp_qkv: gated delta product mixers are not modelled; no layer has one");
  note(s, d, t->optimizer == OPTIMIZER_SOAP, KEY_training_optimizer,
       "the preconditioners of soap are not modelled; predicted with the states of adam");
  note(s, d, optimizer_is_muon(t->optimizer) && t->muon_fp32_matmul_prec == MUON_PRODUCTS_HIGH,
       KEY_training_muon_fp32_matmul_prec, "TF32 is not modelled; predicted as highest");
  note(s, d, t->optimizer == OPTIMIZER_ADAPTIVE_MUON, KEY_training_optimizer,
       "the second moments of adaptive_muon are not modelled; predicted as muon");
  note(s, d, s->model.num_experts > 0 && s->model.moe_flex_dispatcher_backend == FLEX_NCCLEP,
       KEY_model_moe_flex_dispatcher_backend, "ncclep is not modelled; predicted as hybridep");
}
