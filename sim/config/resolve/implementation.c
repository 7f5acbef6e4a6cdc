/* Whose modules run, and their defaults. */
#include "sim/config/resolve/steps.h"

/* The default with an offload system of the Hugging Face trainers: their modules. */
static implementation_choice default_implementation(const settings *s)
{
  if (s->offload.system != SYSTEM_EMPTY &&
      offload_systems[s->offload.system].implementation == OFFLOAD_ON_HF) {
    return IMPLEMENTATION_HF;
  }
  return s->model.transformer_impl == TRANSFORMER_LOCAL ? IMPLEMENTATION_LOCAL : IMPLEMENTATION_TE;
}

bool resolve_implementation(settings *s, diag *d)
{
  struct model_settings *m = &s->model;
  setting_key key = KEY_model_implementation, older = KEY_model_transformer_impl;

  if (m->implementation == IMPLEMENTATION_EMPTY) {
    m->implementation = default_implementation(s);
  }
  if (uses_hf(s)) {
    s->training.gradient_accumulation_fusion = false;
    return true;
  }
  transformer_impl_choice modules =
      m->implementation == IMPLEMENTATION_TE ? TRANSFORMER_TE : TRANSFORMER_LOCAL;
  if (!s->given[older]) {
    m->transformer_impl = modules;
  }
  return need(s, d, m->transformer_impl == modules, key, older,
              "implementation is %s, but transformer_impl %s", chosen_word(s, key),
              chosen_word(s, older));
}

/* NULL: no pattern is given. */
static bool *given_layers(const settings *s, const char *pattern, arena *a)
{
  return *pattern == '\0' ? NULL : ARENA_ARRAY(a, bool, (size_t)s->model.num_layers);
}

/* Dropout is off by default in transformers' configurations. */
bool resolve_hf(settings *s, arena *a, diag *d)
{
  struct model_settings *m = &s->model;

  if (!uses_hf(s)) {
    return true;
  }
  if (!s->given[KEY_model_attention_dropout]) {
    m->attention_dropout = 0;
  }
  if (!s->given[KEY_model_hidden_dropout]) {
    m->hidden_dropout = 0;
  }
  if (m->mtp_num_layers > 0) {
    diag_note(d, s->at[KEY_model_mtp_num_layers],
              "model.mtp_num_layers: transformers leaves out layers of multi-token prediction");
    m->mtp_num_layers = 0;
  }
  s->derived.layer_rotates = ARENA_ARRAY(a, bool, (size_t)m->num_layers);
  s->derived.layer_recomputes = ARENA_ARRAY(a, bool, (size_t)m->num_layers);
  s->derived.layer_recomputes_mlp = given_layers(s, s->recompute.recompute_mlp_layers, a);
  s->derived.layer_keeps_mlp = given_layers(s, s->recompute.selective_checkpointing_mlp_layers, a);
  s->derived.layer_keeps_activation =
      given_layers(s, s->recompute.selective_checkpointing_activation_layers, a);
  s->derived.layer_is_linear = ARENA_ARRAY(a, bool, (size_t)m->num_layers);
  return layer_pattern_parse(s, KEY_model_rope_layers, m->rope_layers, s->derived.layer_rotates,
                             d) &&
         layer_pattern_parse(s, KEY_recompute_recompute_layers, s->recompute.recompute_layers,
                             s->derived.layer_recomputes, d) &&
         (s->derived.layer_recomputes_mlp == NULL ||
          layer_pattern_parse(s, KEY_recompute_recompute_mlp_layers,
                              s->recompute.recompute_mlp_layers, s->derived.layer_recomputes_mlp,
                              d)) &&
         (s->derived.layer_keeps_mlp == NULL ||
          layer_pattern_parse(s, KEY_recompute_selective_checkpointing_mlp_layers,
                              s->recompute.selective_checkpointing_mlp_layers,
                              s->derived.layer_keeps_mlp, d)) &&
         (s->derived.layer_keeps_activation == NULL ||
          layer_pattern_parse(s, KEY_recompute_selective_checkpointing_activation_layers,
                              s->recompute.selective_checkpointing_activation_layers,
                              s->derived.layer_keeps_activation, d)) &&
         (m->linear_num_value_heads == 0 ||
          layer_pattern_parse(s, KEY_model_linear_attention_layers, m->linear_attention_layers,
                              s->derived.layer_is_linear, d));
}
