/* Constraints of recomputation. Sources: see validate.h. */

#include "sim/config/validate/validate.h"

static bool check_full(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  setting_key granularity = KEY_recompute_recompute_granularity;

  return need(s, d, r->recompute_method != METHOD_NONE, granularity, granularity,
              "recompute_granularity full needs recompute_method, uniform or block") &&
         need(s, d, r->recompute_num_layers != UNSET, granularity, granularity,
              "recompute_granularity full needs recompute_num_layers, from 1 to the layers of a "
              "virtual stage");
}

static bool check_distributed(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  setting_key key = KEY_recompute_distribute_saved_activations;

  return !r->distribute_saved_activations ||
         (need(s, d, s->parallel.tensor_model_parallel_size > 1, key, key,
               "distribute_saved_activations needs a tensor_model_parallel_size above 1") &&
          need(s, d, r->recompute_granularity == GRANULARITY_FULL, key, key,
               "distribute_saved_activations needs recompute_granularity full") &&
          need(s, d, !s->parallel.sequence_parallel, key, KEY_parallel_sequence_parallel,
               "distribute_saved_activations does not work with sequence_parallel"));
}

/* Modules of parts that are not modelled, after what Megatron itself refuses. */
static bool check_modules_of_others(const settings *s, diag *d)
{
  const choice_list *modules = &s->recompute.recompute_modules;
  const struct offload_settings *o = &s->offload;
  setting_key key = KEY_recompute_recompute_modules;
  bool mhc = has_choice(modules, RECOMPUTE_MHC), gdp = has_choice(modules, RECOMPUTE_GDP_IN_PROJ);

  return need(s, d, !mhc || !o->fine_grained_activation_offloading, key,
              KEY_offload_fine_grained_activation_offloading,
              "recompute_modules mhc does not work with fine_grained_activation_offloading, which "
              "has no handler for the chunk yet when that recomputation is set up") &&
         need(s, d, !gdp || !has_choice(&o->offload_modules, OFFLOAD_GDP_QKV), key,
              KEY_offload_offload_modules,
              "recompute_modules gdp_in_proj does not work with offload_modules gdp_qkv, whose "
              "input it discards") &&
         need(s, d, !mhc, key, key,
              "recompute_modules has mhc, which needs hyper connections; they are not modelled") &&
         need(s, d, !gdp, key, key,
              "recompute_modules has gdp_in_proj, which needs a gated delta product mixer; it is "
              "not modelled");
}

static bool check_selective(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  const struct training_settings *t = &s->training;
  setting_key modules = KEY_recompute_recompute_modules;
  bool moe_act = has_choice(&r->recompute_modules, RECOMPUTE_MOE_ACT);
  bool norms = has_choice(&r->recompute_modules, RECOMPUTE_LAYERNORM);
  bool mlp_act = has_choice(&r->recompute_modules, RECOMPUTE_MLP_ACT);
  bool fp8 = t->fp8_format != FP8_FORMAT_NONE, delayed = fp8 && t->fp8_recipe == FP8_RECIPE_DELAYED;
  bool old_engine = s->derived.software.transformer_engine < SOFTWARE_VERSION(2, 6);

  return need(s, d, r->recompute_method == METHOD_NONE, KEY_recompute_recompute_method,
              KEY_recompute_recompute_granularity,
              "recompute_method does not work with recompute_granularity selective") &&
         need(s, d, r->recompute_num_layers == UNSET, KEY_recompute_recompute_num_layers,
              KEY_recompute_recompute_granularity,
              "recompute_num_layers does not work with recompute_granularity selective") &&
         need(s, d, !moe_act || s->model.moe_grouped_gemm, modules, KEY_model_moe_grouped_gemm,
              "recompute_modules has moe_act, which needs moe_grouped_gemm") &&
         need(s, d,
              !has_choice(&r->recompute_modules, RECOMPUTE_MLA_UP_PROJ) ||
                  s->model.multi_latent_attention,
              modules, modules,
              "recompute_modules has mla_up_proj, which needs multi_latent_attention") &&
         need(s, d,
              !has_choice(&r->recompute_modules, RECOMPUTE_SHARED_EXPERTS) ||
                  !s->model.moe_shared_expert_overlap,
              modules, KEY_model_moe_shared_expert_overlap,
              "recompute_modules has shared_experts, which does not work with "
              "moe_shared_expert_overlap") &&
         need(s, d, !delayed || (!moe_act && !norms), modules, KEY_training_fp8_recipe,
              "recompute_modules moe_act and layernorm do not work with fp8_recipe delayed") &&
         need(s, d, !fp8 || !old_engine || (!moe_act && !norms), modules, KEY_software_container,
              "recompute_modules moe_act and layernorm with fp8_format need Transformer Engine "
              "2.6; container is \"%.100s\"",
              s->software.container) &&
         need(s, d, !mlp_act || s->offload.mode != MODE_AS_RELEASED, modules, KEY_offload_mode,
              "recompute_modules has mlp_act, which no released Megatron-LM knows; it is a what-if "
              "of offload.mode fixed") &&
         need(s, d, !mlp_act || !has_choice(&r->recompute_modules, RECOMPUTE_MLP), modules, modules,
              "recompute_modules has mlp and mlp_act; the whole MLP is recomputed anyway") &&
         need(s, d, !mlp_act || !fp8, modules, KEY_training_fp8_format,
              "recompute_modules mlp_act with fp8_format is not modelled") &&
         check_modules_of_others(s, d);
}

bool validate_recompute(const settings *s, diag *d)
{
  if (!check_distributed(s, d)) {
    return false;
  }
  switch (s->recompute.recompute_granularity) {
  case GRANULARITY_NONE: return true;
  case GRANULARITY_FULL: return check_full(s, d);
  case GRANULARITY_SELECTIVE: return check_selective(s, d);
  }
  return false;
}
