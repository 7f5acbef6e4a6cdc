/* Settings that can change memory or time and are predicted without that: a note for each. */
#include "sim/config/resolve_parts.h"

/* Multi-token prediction on a stage without the loss. */
static bool has_standalone_mtp(const settings *s)
{
  int64_t count = s->derived.virtual_stages * s->parallel.pipeline_model_parallel_size;

  for (int64_t i = 0; i < count; i++) {
    if (s->derived.stages[i].mtp_layers > 0 && !s->derived.stages[i].loss) {
      return true;
    }
  }
  return false;
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

  note(s, d, p->context_parallel_size > 1 && names_contain(&p->cp_comm_type, "a2a+p2p"),
       KEY_parallel_cp_comm_type, "a2a+p2p is not modelled; predicted as p2p");
  note(s, d, text_is(s->model.position_embedding_type, "relative"),
       KEY_model_position_embedding_type, "the bias of relative positions is not modelled");
  note(s, d, t->fp8_format[0] != '\0' && text_is(t->fp8_recipe, "custom"), KEY_training_fp8_recipe,
       "a custom recipe is not modelled; predicted as tensorwise");
  note(s, d, p->overlap_moe_expert_parallel_comm, KEY_parallel_overlap_moe_expert_parallel_comm,
       "its schedule is not modelled; predicted without overlap");
  note(s, d, !text_is(t->cuda_graph_impl, "none"), KEY_training_cuda_graph_impl,
       "the memory of CUDA graphs and the launches they save are not modelled");
  note(s, d, text_is(t->optimizer, "soap"), KEY_training_optimizer,
       "the preconditioners of soap are not modelled; predicted with the states of adam");
  note(s, d, text_is(t->optimizer, "adaptive_muon"), KEY_training_optimizer,
       "the second moments of adaptive_muon are not modelled; predicted as muon");
  note(s, d, s->model.num_experts > 0 && text_is(s->model.moe_flex_dispatcher_backend, "ncclep"),
       KEY_model_moe_flex_dispatcher_backend, "ncclep is not modelled; predicted as hybridep");
  note(s, d, has_standalone_mtp(s), KEY_parallel_pipeline_model_parallel_layout,
       "activations of MTP layers on a stage without the loss are not modelled");
}
