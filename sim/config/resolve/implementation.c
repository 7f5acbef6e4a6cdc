/* Whose modules run, and what they are without a word about it. */
#include "sim/config/resolve/steps.h"

/* Systems of the Hugging Face trainers run its modules, without a word about it. */
static const char *default_implementation(const settings *s)
{
  bool needs_hf = s->offload.system[0] != '\0' &&
                  offload_system_find(s->offload.system)->implementation == OFFLOAD_ON_HF;

  if (needs_hf) {
    return "hf";
  }
  return text_is(s->model.transformer_impl, "local") ? "local" : "te";
}

bool resolve_implementation(settings *s, diag *d)
{
  struct model_settings *m = &s->model;
  setting_key key = KEY_model_implementation, older = KEY_model_transformer_impl;

  if (m->implementation[0] == '\0') {
    m->implementation = default_implementation(s);
  }
  if (uses_hf(s)) {
    s->training.gradient_accumulation_fusion = false;
    return true;
  }
  const char *modules = text_is(m->implementation, "te") ? "transformer_engine" : "local";
  if (!s->given[older]) {
    m->transformer_impl = modules;
  }
  return need(s, d, text_is(m->transformer_impl, modules), key, older,
              "implementation is %s, but transformer_impl %s", m->implementation,
              m->transformer_impl);
}

/* The configurations of transformers have no dropout where they do not say so. */
void resolve_hf(settings *s)
{
  struct model_settings *m = &s->model;

  if (uses_hf(s) && !s->given[KEY_model_attention_dropout]) {
    m->attention_dropout = 0;
  }
  if (uses_hf(s) && !s->given[KEY_model_hidden_dropout]) {
    m->hidden_dropout = 0;
  }
}
