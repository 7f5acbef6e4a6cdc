/*
 * Resolves settings. Steps run in Megatron's order: command line (validate_args), then the config
 * classes. A step that runs again on its own result changes nothing, so that a printed scenario reads
 * back to itself.
 */
#include <assert.h>

#include "sim/config/resolve/steps.h"
#include "sim/config/validate/validate.h"

static bool check_required(const settings *s, diag *d)
{
  for (setting_key key = 0; key < KEY_COUNT; key++) {
    if (key_is_required(key) && !need_given(s, d, key)) {
      diag_go_on(d);
    }
  }
  return diag_ok(d);
}

static void run_checks(settings_check *const *checks, size_t count, const settings *s, diag *d)
{
  for (size_t i = 0; i < count; i++) {
    checks[i](s, d);
    diag_go_on(d);
  }
}

/* Each check is one subject, which stops at its first error. What a model of Hugging Face cannot
 * have comes first, since other rules follow from it; sizes are multiplied once all else holds. */
static bool validate(const settings *s, settings_check *of_system, diag *d)
{
  static settings_check *const before_offload[] = {
    validate_parallel, validate_model,     validate_moe,
    validate_training, validate_recompute, validate_cuda_graphs,
  };
  static settings_check *const after_offload[] = {
    validate_checkpoint_engines, validate_paged_stash, validate_host_experts, validate_fsdp,
    validate_environment,
  };
  if (!validate_hf(s, d)) {
    return false;
  }
  run_checks(before_offload, sizeof before_offload / sizeof *before_offload, s, d);
  validate_offload(s, of_system, d);
  diag_go_on(d);
  run_checks(after_offload, sizeof after_offload / sizeof *after_offload, s, d);
  return diag_ok(d) && validate_sizes(s, d);
}

/* The rest of offsim relies on this. */
static void assert_resolved(const settings *s)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t model_parallel =
      p->tensor_model_parallel_size * p->context_parallel_size * p->pipeline_model_parallel_size;
  int64_t stages = p->pipeline_model_parallel_size * s->derived.virtual_stages, layers = 0;

  assert(p->world_size == model_parallel * s->derived.data_parallel_size);
  assert(s->derived.num_microbatches > 0 && s->derived.virtual_stages > 0);
  assert(s->model.implementation != IMPLEMENTATION_EMPTY && s->offload.system != SYSTEM_EMPTY);
  assert(!uses_hf(s) || p->pipeline_model_parallel_size == 1);
  for (int64_t k = 0; k < stages; k++) {
    const struct stage_content *stage = &s->derived.stages[k];
    for (uint32_t i = 0; i < stage->layer_count; i++)
      assert(stage->layers[i] < s->model.num_layers);
    layers += stage->layer_count;
  }
  assert(layers == s->model.num_layers && "each decoder layer is on one stage");
}

bool settings_resolve(settings *s, settings_check *of_system, arena *a, diag *d)
{
  if (!diag_ok(d) || !check_required(s, d)) {
    return false;
  }
  resolve_axolotl_disk(s, d);
  if (!resolve_implementation(s, d) || !resolve_ranks(s, d) || !resolve_batch_schedule(s, a, d) ||
      !resolve_microbatches(s, d) || !resolve_stages(s, a, d) || !resolve_model(s, a, d)) {
    return false;
  }
  resolve_pipeline(s);
  resolve_training(s);
  if (!resolve_software(s, a, d)) {
    return false;
  }
  resolve_layer_wise_layout(s);
  resolve_muon(s);
  resolve_state_offload(s);
  resolve_offload(s, a, d);
  resolve_fsdp(s, d);
  resolve_verl(s, d);
  if (!resolve_manual_offload(s, a, d) || !validate(s, of_system, d)) {
    return false;
  }
  drop_layers_in_parts(s, d);
  note_unmodelled(s, d);
  note_idle(s, a, d);
  assert_resolved(s);
  return true;
}
