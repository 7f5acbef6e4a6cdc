#include "sim/calibrate/trainings.h"

#include <assert.h>
#include <string.h>

#include "sim/compile/compile.h"
#include "sim/offload/systems.h"

/* clang-format off */
#define WIDE                              \
  { "hidden_size", "4096" },              \
  { "ffn_hidden_size", "14336" },         \
  { "num_attention_heads", "32" }
#define TWO_STAGES                        \
  { "world_size", "2" },                  \
  { "pipeline_model_parallel_size", "2" }, \
  { "global_batch_size", "4" },           \
  { "seq_length", "16384" }

const calibration_model calibration_models[] = {
  { "llama-2048", "llama", { { 0 } } },
  { "llama-4096", "llama", { WIDE, { "seq_length", "8192" } } },
  { "llama-4096-long", "llama", { WIDE, { "seq_length", "16384" }, { "num_layers", "4" } } },
  { "llama-4096-middle", "llama", { WIDE } },
  { "llama-4096-short", "llama", { WIDE, { "seq_length", "2048" } } },
  { "llama-8192", "llama",
    { { "hidden_size", "8192" }, { "ffn_hidden_size", "28672" }, { "num_attention_heads", "64" },
      { "num_layers", "3" } } },
  { "mixture-2048", "mixture", { { 0 } } },
  { "mixture-2048-long", "mixture",
    { { "seq_length", "16384" }, { "num_layers", "3" }, { "moe_layer_freq", "[0,1,1]" } } },
  { "mixture-2048-middle", "mixture", { { "seq_length", "8192" } } },
  { "torch-4096", "torch",
    { { "position_embedding_type", "none" }, { "fused_projections", "true" },
      { "fused_rms_norm", "true" }, { "optimizer", "none" }, { "keep_gradients", "true" } } },
  { "torch-4096-rope", "torch", { { 0 } } },
  { 0 },
};

const calibration_model calibration_exchanges[] = {
  { "data parallel", "llama",
    { WIDE, { "num_layers", "4" }, { "use_distributed_optimizer", "false" } } },
  { "expert parallel", "mixture",
    { { "num_layers", "2" }, { "moe_layer_freq", "[0,1]" }, { "world_size", "2" },
      { "expert_model_parallel_size", "2" }, { "global_batch_size", "2" },
      { "use_distributed_optimizer", "false" } } },
  { "pipeline", "llama", { TWO_STAGES, { "num_layers", "2" } } },
  { "virtual stages", "llama",
    { TWO_STAGES, { "num_virtual_stages_per_pipeline_rank", "2" }, { "overlap_p2p_comm", "true" },
      { "fine_grained_activation_offloading", "true" },
      { "offload_modules", "core_attn,attn_proj" }, { "nvte_cpu_offload_v1", "true" } } },
  { 0 },
};
/* clang-format on */

static const char *text_of(const char *base)
{
  const calibration_base *b = calibration_bases;
  while (b->name != NULL && strcmp(b->name, base) != 0)
    b++;
  assert(b->name != NULL && "a scenario of sim/calibrate/models");
  return b->text;
}

bool calibration_read(settings *s, const calibration_model *of, arena *a, diag *d)
{
  const char *text = text_of(of->base);
  const source_pos at = { of->name, 0, 0 };
  bool ok = settings_read_scenario(s, of->base, text, strlen(text), a, d);
  for (uint32_t i = 0; i < CALIBRATION_SETTINGS && of->set[i].key != NULL && ok; i++)
    ok = settings_set(s, of->set[i].key, of->set[i].value, at, a, d);
  return ok;
}

/* ---- running them --------------------------------------------------------------------------- */

bool calibrate_train(const calibration_bench *b, const calibration_model *of, const machine *m,
                     calibrate_steps *set_steps, calibration_run *run, arena *a, diag *d)
{
  settings s;
  compilation first = { 0 }, steady = { 0 };
  settings_init(&s, a);
  s.derived.compute_capability = (int)m->gpu.compute_capability;
  bool ok = calibration_read(&s, of, a, d);
  if (ok) {
    int64_t *world_size = &s.parallel.world_size;
    if (*world_size == UNSET) *world_size = run->ranks;
    run->ranks = (uint32_t)*world_size;
  }
  ok = ok && settings_resolve(&s, offload_conditions, a, d) &&
       compile(&first, &s, ITERATION_WARMUP, a, d) && compile(&steady, &s, ITERATION_STEADY, a, d);
  if (ok) {
    run->settings = &s;
    run->first = &first.plan;
    run->steady = &steady.plan;
    set_steps(run, &steady.plan, m);
    assert(run->ranks > 0 && run->times_from < run->steps);
    ok = b->train(run, a, d);
  }
  compilation_release(&first);
  compilation_release(&steady);
  return ok;
}

bool calibrate_each(const calibration_bench *b, const calibration_model *list, calibrate_one *one,
                    void *job, diag *d)
{
  uint32_t count = 0;
  while (list[count].name != NULL)
    count++;
  for (uint32_t i = 0; i < count; i++) {
    diag own = { 0 };
    b->progress(b->context, list[i].name, i, count);
    if (!b->sample_links(b->context, d)) return false;
    if (one(&list[i], job, &own)) continue;
    if (!diag_is_refusal(&own)) {
      *d = own;
      return false;
    }
    diag_note(d, (source_pos){ 0 }, "%s is left out: %s", list[i].name, own.message);
  }
  return true;
}
