/*
 * Turns that are copied from the turn before: the plan is that of a walk of every turn, byte by byte, and so
 * is what else the compilation knows. Settings are drawn, each of a list of choices.
 */
#include "tests/unit/same_repeats.h"
#include "tests/unit/small_runs.h"

#include <stdio.h>

enum { DRAWS = 80, TEXT_BYTES = 4096, MOST_CHOICES = 10 };

typedef const char *const choices[MOST_CHOICES]; /* up to the first NULL */

static choices bases = { SMALL_DENSE, SMALL_MOE };
static choices batches = { "24", "36", "48" };
static choices pipelines = {
  "{world_size: 1",
  "{world_size: 2, pipeline_model_parallel_size: 2",
  "{world_size: 4, pipeline_model_parallel_size: 4",
  "{world_size: 2, pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 2",
  "{world_size: 4, pipeline_model_parallel_size: 4, num_layers_per_virtual_pipeline_stage: 1",
  "{world_size: 2, pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 1, "
  "microbatch_group_size_per_vp_stage: 3",
  "{world_size: 4, pipeline_model_parallel_size: 2, num_layers_per_virtual_pipeline_stage: 2, "
  "expert_model_parallel_size: 2, overlap_moe_expert_parallel_comm: true",
  "{world_size: 2, expert_model_parallel_size: 2, overlap_moe_expert_parallel_comm: true",
};
static choices of_parallel = { "", ", overlap_p2p_comm: false",
                               ", use_distributed_optimizer: true" };
static choices of_training = { "", ", timing_log_level: 2", ", gradient_accumulation_fusion: false",
                               ", attention_backend: unfused", ", delay_wgrad_compute: true" };
static choices recomputes = {
  "",
  "recompute: {recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 1}\n",
  "recompute: {recompute_granularity: selective, recompute_modules: [core_attn]}\n",
  "recompute: {recompute_granularity: selective, recompute_modules: [layernorm, moe_act]}\n",
};
static choices systems = {
  "{system: none",
  "{offload_modules: [core_attn, attn_proj]",
  "{offload_modules: [core_attn]",
  "{offload_modules: [attn_norm, qkv_linear, mlp_norm]",
  "{offload_modules: [attn_norm, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act]",
  "{offload_modules: [expert_fc1, moe_act]",
  "{offload_modules: [layer_input]",
  "{system: te_v1, cpu_offloading_num_layers: 1",
};
static choices of_offload = { "",
                              ", mode: as_released",
                              ", mode: pr7575",
                              ", activation_offload_fraction: 0.5",
                              ", delta_offload_bytes_across_pp_ranks: 30000000",
                              ", fine_grained_offloading_max_inflight_offloads: 1",
                              ", min_offloaded_tensor_size: 0" };

static const char *draw(uint32_t *seed, choices from)
{
  uint32_t count = 0;
  while (count < MOST_CHOICES && from[count] != NULL)
    count++;
  *seed = *seed * 1664525 + 1013904223;
  return from[(*seed >> 16) % count];
}

/* NULL: the settings are refused. */
static settings *draw_settings(uint32_t seed, arena *a)
{
  char text[TEXT_BYTES];
  diag d = { .quiet = true };
  settings *s = ARENA_NEW(a, settings);
  const char *base = draw(&seed, bases), *pipeline = draw(&seed, pipelines);
  const char *parallel = draw(&seed, of_parallel), *batch = draw(&seed, batches);
  const char *training = draw(&seed, of_training), *recompute = draw(&seed, recomputes);
  const char *system = draw(&seed, systems), *offload = draw(&seed, of_offload);
  bool fine_grained = strstr(system, "system") == NULL;
  snprintf(text, sizeof text,
           "model: {num_layers: 8}\nparallel: %s%s}\ntraining: {global_batch_size: %s%s}\n%s"
           "offload: %s%s%s}\nsoftware: {nvte_cpu_offload_v1: true}\n",
           pipeline, parallel, batch, training, recompute, system,
           fine_grained ? ", fine_grained_activation_offloading: true" : "",
           fine_grained ? offload : "");
  settings_init(s, a);
  s->offload.mode = MODE_FIXED;
  settings_read_scenario(s, "base", base, strlen(base), a, &d);
  settings_read_scenario(s, "changes", text, strlen(text), a, &d);
  s->derived.compute_capability = 90;
  settings_resolve(s, offload_conditions, a, &d);
  return diag_ok(&d) ? s : NULL;
}

static void assert_same(const compilation *a, const compilation *b)
{
  assert_true(plan_is_same(&a->plan, &b->plan));
  for (uint32_t r = 0; r < a->plan.rank_count; r++) {
    assert_same_repeat(&a->plan.ranks[r].repeat, &b->plan.ranks[r].repeat);
    assert_int_equal(a->offloaded_groups[r], b->offloaded_groups[r]);
    for (uint32_t k = 0; k < a->shapes[r].chunk_count; k++)
      assert_memory_equal(a->copied_bytes[r][k], b->copied_bytes[r][k],
                          a->shapes[r].chunks[k].group_count * sizeof(int64_t));
    assert_string_equal(a->defects[r] != NULL ? a->defects[r] : "",
                        b->defects[r] != NULL ? b->defects[r] : "");
  }
}

/* Returns how many turns were copied. */
static uint32_t check(const settings *s, iteration_kind kind, arena *a)
{
  compilation every, some;
  diag d[2] = { { .quiet = true }, { .quiet = true } };
  uint32_t copied = 0;
  bool good = compile_every_turn(&every, s, kind, a, &d[0]);
  assert_int_equal(compile(&some, s, kind, a, &d[1]), good);
  if (good)
    assert_same(&every, &some);
  else
    assert_string_equal(d[0].message, d[1].message);
  for (uint32_t r = 0; good && r < every.plan.rank_count; r++) {
    assert_int_equal(every.copied_turns[r], 0);
    copied += some.copied_turns[r];
  }
  compilation_release(&every);
  compilation_release(&some);
  return copied;
}

static void test_drawn_settings(void **state)
{
  (void)state;
  uint32_t tried = 0, copied = 0;
  for (uint32_t seed = 0; seed < DRAWS; seed++) {
    arena a = { 0 };
    const settings *s = draw_settings(seed, &a);
    tried += s != NULL;
    for (int kind = 0; s != NULL && kind < 2; kind++)
      copied += check(s, (iteration_kind)kind, &a) > 0;
    arena_release(&a);
  }
  assert_true(tried > DRAWS / 3 && copied > tried);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_drawn_settings) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
