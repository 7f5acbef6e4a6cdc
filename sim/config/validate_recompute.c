/* Constraints of recomputation. Sources: see resolve_parts.h. */
#include <inttypes.h>

#include "sim/config/resolve_parts.h"

static bool check_full(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  setting_key granularity = KEY_recompute_recompute_granularity;

  return need(s, d, r->recompute_method[0] != '\0', granularity, granularity,
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
          need(s, d, text_is(r->recompute_granularity, "full"), key, key,
               "distribute_saved_activations needs recompute_granularity full") &&
          need(s, d, !s->parallel.sequence_parallel, key, KEY_parallel_sequence_parallel,
               "distribute_saved_activations does not work with sequence_parallel"));
}

static bool check_selective(const settings *s, diag *d)
{
  const struct recompute_settings *r = &s->recompute;
  const struct training_settings *t = &s->training;
  setting_key modules = KEY_recompute_recompute_modules;
  bool moe_act = names_contain(&r->recompute_modules, "moe_act");
  bool norms = names_contain(&r->recompute_modules, "layernorm");
  bool fp8 = t->fp8_format[0] != '\0', delayed = fp8 && text_is(t->fp8_recipe, "delayed");
  bool old_engine = s->derived.software.transformer_engine < SOFTWARE_VERSION(2, 6);

  return need(s, d, r->recompute_method[0] == '\0', KEY_recompute_recompute_method,
              KEY_recompute_recompute_granularity,
              "recompute_method does not work with recompute_granularity selective") &&
         need(s, d, r->recompute_num_layers == UNSET, KEY_recompute_recompute_num_layers,
              KEY_recompute_recompute_granularity,
              "recompute_num_layers does not work with recompute_granularity selective") &&
         need(s, d, !moe_act || s->model.moe_grouped_gemm, modules, KEY_model_moe_grouped_gemm,
              "recompute_modules has moe_act, which needs moe_grouped_gemm") &&
         need(s, d,
              !names_contain(&r->recompute_modules, "mla_up_proj") ||
                  s->model.multi_latent_attention,
              modules, modules,
              "recompute_modules has mla_up_proj, which needs multi_latent_attention") &&
         need(s, d,
              !names_contain(&r->recompute_modules, "shared_experts") ||
                  !s->model.moe_shared_expert_overlap,
              modules, KEY_model_moe_shared_expert_overlap,
              "recompute_modules has shared_experts, which does not work with "
              "moe_shared_expert_overlap") &&
         need(s, d, !delayed || (!moe_act && !norms), modules, KEY_training_fp8_recipe,
              "recompute_modules moe_act and layernorm do not work with fp8_recipe delayed") &&
         need(s, d, !fp8 || !old_engine || (!moe_act && !norms), modules, KEY_software_container,
              "recompute_modules moe_act and layernorm with fp8_format need Transformer Engine "
              "2.6; container is \"%.100s\"",
              s->software.container);
}

bool validate_recompute(const settings *s, diag *d)
{
  const char *granularity = s->recompute.recompute_granularity;

  if (!check_distributed(s, d)) {
    return false;
  }
  if (text_is(granularity, "full")) {
    return check_full(s, d);
  }
  return text_is(granularity, "") || check_selective(s, d);
}
