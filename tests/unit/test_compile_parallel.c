/*
 * Ranks that are compiled side by side, and iterations that share what is lowered: the plan is that of one
 * thread and one iteration, row by row, and so is the error.
 */
#include "sim/predict/common_plans.h"
#include "tests/unit/same_repeats.h"
#include "tests/unit/small_runs.h"

enum { MOST_THREADS = 5 };

static void assert_same_entries(const chunk_shape *a, const chunk_shape *b)
{
  assert_int_equal(a->entry_count, b->entry_count);
  for (uint32_t i = 0; i < a->entry_count; i++) {
    assert_int_equal(a->entries[i].tensor, b->entries[i].tensor);
    assert_int_equal(a->entries[i].view, b->entries[i].view);
  }
}

static void assert_same(const compilation *a, const compilation *b)
{
  assert_true(plan_is_same(&a->plan, &b->plan));
  plan_assert_valid(&b->plan);
  for (uint32_t r = 0; r < a->plan.rank_count; r++) {
    assert_same_repeat(&a->plan.ranks[r].repeat, &b->plan.ranks[r].repeat);
    assert_int_equal(a->offloaded_groups[r], b->offloaded_groups[r]);
    for (uint32_t k = 0; k < a->shapes[r].chunk_count; k++)
      assert_same_entries(&a->shapes[r].chunks[k], &b->shapes[r].chunks[k]);
  }
}

static const char *ok_or(const diag *d)
{
  return diag_ok(d) ? "ok" : d->message;
}

/* Whether it is compiled. */
static bool check(const char *base, const char *changes, iteration_kind kind)
{
  arena a = { 0 };
  diag alone = { .quiet = true };
  compilation one;
  const settings *s = small_settings(base, changes, &a);
  bool good = compile(&one, s, kind, &a, &alone);
  for (uint32_t threads = 1; threads <= MOST_THREADS; threads++) {
    diag d = { .quiet = true };
    compilation c;
    assert_int_equal(compile_in_parallel(&c, s, kind, threads, &a, &d), good);
    assert_string_equal(ok_or(&d), ok_or(&alone));
    if (good) assert_same(&one, &c);
    compilation_release(&c);
  }
  compilation_release(&one);
  arena_release(&a);
  return good;
}

static const struct {
  const char *base, *changes;
} cases[] = {
  { SMALL_DENSE, SMALL_PIPELINE("1", "") SMALL_OFFLOAD },
  { SMALL_DENSE, SMALL_PIPELINE("4", "") "offload: {system: none}\n" },
  { SMALL_DENSE, SMALL_PIPELINE("4", "") SMALL_OFFLOAD },
  { SMALL_DENSE, SMALL_PIPELINE("4", "") "offload: {fine_grained_activation_offloading: true, "
                                         "offload_modules: [core_attn, attn_proj], "
                                         "mode: as_released}\nsoftware: {megatron: core_v0.16}\n" },
  { SMALL_DENSE, SMALL_PIPELINE("2", ", num_layers_per_virtual_pipeline_stage: 2") SMALL_OFFLOAD },
  { SMALL_DENSE, SMALL_PIPELINE("4", "") "training: {use_precision_aware_optimizer: true, "
                                         "optimizer_cpu_offload: true}\n" },
  { SMALL_MOE,
    SMALL_PIPELINE(
        "4", ", expert_model_parallel_size: 1") "offload: {fine_grained_activation_offloading: "
                                                "true, offload_modules: [core_attn, expert_fc1, "
                                                "moe_act, attn_norm, mlp_norm, attn_proj, "
                                                "qkv_linear]}\n" },
};

static void test_same_plan(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int kind = 0; kind < 2; kind++)
      assert_true(check(cases[i].base, cases[i].changes, (iteration_kind)kind));
}

/* What is lowered is gone before anything looks at the plans. */
static void test_shared_lowering(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    arena a = { 0 };
    diag d = { .quiet = true };
    compilation shared[2];
    const settings *s = small_settings(cases[i].base, cases[i].changes, &a);
    lowered_ranks l = lower_ranks(s, 2);
    for (int kind = 0; kind < 2; kind++)
      assert_true(compile_lowered(&shared[kind], s, &l, (iteration_kind)kind, 3, &a, &d));
    lowered_ranks_release(&l);
    for (int kind = 0; kind < 2; kind++) {
      compilation alone;
      assert_true(compile(&alone, s, (iteration_kind)kind, &a, &d));
      assert_same(&alone, &shared[kind]);
      compilation_release(&alone);
      compilation_release(&shared[kind]);
    }
    arena_release(&a);
  }
}

/* Whether they are compiled: both at once, or one after the other. */
static bool compile_common(common_plans *c, const settings *s, int first, arena *a, diag *d)
{
  if (first == ITERATION_KINDS) return common_plans_compile_both(c, s, 3, a, d);
  return common_plans_compile(c, s, (iteration_kind)first, a, d) &&
         common_plans_compile(c, s, (iteration_kind)(1 - first), a, d);
}

static void test_common_plans(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int first = 0; first <= ITERATION_KINDS; first++) {
      arena a = { 0 };
      diag d = { .quiet = true };
      common_plans c = { 0 };
      const settings *s = small_settings(cases[i].base, cases[i].changes, &a);
      assert_true(compile_common(&c, s, first, &a, &d));
      for (int kind = 0; kind < ITERATION_KINDS; kind++) {
        compilation alone;
        assert_true(compile(&alone, s, (iteration_kind)kind, &a, &d));
        assert_same(&alone, &c.compiled[kind]);
        compilation_release(&alone);
      }
      common_plans_release(&c);
      arena_release(&a);
    }
}

/* Ranks 1 to 3 stop; one thread would come no further than rank 1. */
static const char stopping[] =
    SMALL_PIPELINE("4", "") "offload: {fine_grained_activation_offloading: true, "
                            "offload_modules: [core_attn], delta_offload_bytes_across_pp_ranks: 1, "
                            "mode: as_released}\n";

static void test_same_error(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { .quiet = true };
  compilation c;
  assert_true(check(SMALL_DENSE, stopping, ITERATION_WARMUP));
  assert_false(check(SMALL_DENSE, stopping, ITERATION_STEADY));
  compile_in_parallel(&c, small_settings(SMALL_DENSE, stopping, &a), ITERATION_STEADY, 4, &a, &d);
  assert_non_null(strstr(d.message, "pipeline rank 1: "));
  compilation_release(&c);
  arena_release(&a);
}

/* The second iteration stops, whichever comes first. */
static void test_common_error(void **state)
{
  (void)state;
  for (int first = 0; first <= ITERATION_KINDS; first++) {
    arena a = { 0 };
    diag d = { .quiet = true };
    common_plans c = { 0 };
    assert_false(compile_common(&c, small_settings(SMALL_DENSE, stopping, &a), first, &a, &d));
    assert_non_null(strstr(d.message, "pipeline rank 1: "));
    common_plans_release(&c);
    arena_release(&a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_plan),
                                      cmocka_unit_test(test_shared_lowering),
                                      cmocka_unit_test(test_common_plans),
                                      cmocka_unit_test(test_same_error),
                                      cmocka_unit_test(test_common_error) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
