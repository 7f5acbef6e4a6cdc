/*
 * Settings that are predicted one after the other, and share chunks, the first iteration or all figures with
 * the ones before: plans and figures are those of a setting that is predicted alone.
 */
#include "sim/predict/prediction.h"
#include "sim/predict/recent_plans.h"
#include "tests/unit/small_runs.h"

#define BOTH "[core_attn, attn_proj]"
static const struct {
  const char *offload;
  bool same_chunks, same_first, same_figures; /* as the row before */
} rows[] = {
  { BOTH, false, false, false },
  { BOTH ", activation_offload_fraction: 0.5", true, true, false },
  { BOTH ", activation_offload_fraction: 0.49", true, true, true },
  { BOTH ", delta_offload_bytes_across_pp_ranks: 20000000", true, true, false },
  { BOTH ", activation_offload_fraction: 0.0", true, false, false },
  { BOTH ", min_offloaded_tensor_size: 10000000", true, false, false },
  { BOTH ", fine_grained_offloading_max_inflight_offloads: 1", true, false, false },
  { BOTH ", activation_gpu_limit: 1", true, false, false },
  { BOTH ", max_fwd_stash_size: 1", true, false, true }, /* of another system */
  { BOTH ", planned_device_bytes: 1048576", true, false, true },
  { "[core_attn]", false, false, false },
};

static recent_run *find_row(recent_plans *r, const char *offload)
{
  recent_run *own = recent_run_new();
  arena *a = &own->memory;
  const char *changes =
      arena_printf(a,
                   SMALL_PIPELINE("4", "") "offload: {fine_grained_activation_offloading: true, "
                                           "offload_modules: %s}\n",
                   offload);
  own->settings = *small_settings(SMALL_DENSE, changes, a);
  return recent_plans_find(r, own);
}

static void assert_same_plans(const recent_run *r)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    compilation alone;
    assert_true(compile(&alone, &r->settings, (iteration_kind)kind, &a, &d));
    assert_true(plan_is_same(&alone.plan, &r->plans.compiled[kind].plan));
    compilation_release(&alone);
  }
  arena_release(&a);
}

static void assert_same_iteration(const iteration_prediction *a, const iteration_prediction *b,
                                  uint32_t ranks)
{
  assert_int_equal(a->step_ps, b->step_ps);
  for (uint32_t i = 0; i < ranks; i++) {
    const rank_prediction *x = &a->ranks[i], *y = &b->ranks[i];
    assert_int_equal(x->static_bytes, y->static_bytes);
    assert_int_equal(x->allocated_peak_bytes, y->allocated_peak_bytes);
    assert_int_equal(x->reserved_peak_bytes, y->reserved_peak_bytes);
    assert_int_equal(x->host_pinned_peak_bytes, y->host_pinned_peak_bytes);
    assert_int_equal(x->d2h_bytes, y->d2h_bytes);
    assert_int_equal(x->groups, y->groups);
    assert_int_equal(x->offloaded_groups, y->offloaded_groups);
    assert_int_equal(x->exposed_d2h_ps, y->exposed_d2h_ps);
    assert_int_equal(x->bubble_ps, y->bubble_ps);
    assert_int_equal(x->peak_op, y->peak_op);
  }
}

static void assert_same_figures(recent_run *r, const machine *m)
{
  arena a = { 0 };
  diag d = { .quiet = true };
  prediction shared, alone;
  assert_true(predict_common(&shared, &r->settings, m, &r->plans, &a, &d));
  assert_true(predict_alone(&alone, &r->settings, m, &a, &d));
  assert_true(alone.fits_device && shared.fits_device);
  assert_same_iteration(&alone.warmup, &shared.warmup, alone.rank_count);
  assert_same_iteration(&alone.result, &shared.result, alone.rank_count);
  prediction_release(&alone);
  prediction_release(&shared);
  arena_release(&a);
}

/* The settings before are gone when the next ones work with what they leave. */
static void test_rows(void **state)
{
  (void)state;
  arena a = { 0 };
  diag d = { 0 };
  const machine *m = machine_load(&a, "H100-SXM", &d);
  recent_plans *recent = recent_plans_new(1, &a);
  const lowered_rank *chunks = NULL;
  const rank_plan *first = NULL;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    recent_run *r = find_row(recent, rows[i].offload);
    assert_non_null(r);
    assert_int_equal(r->plans.lowered.ranks == chunks, rows[i].same_chunks);
    assert_int_equal(r->plans.compiled[ITERATION_WARMUP].plan.ranks == first, rows[i].same_first);
    assert_int_equal(r->plans.figures[0].of != NULL, rows[i].same_figures);
    assert_same_plans(r);
    assert_same_figures(r, m);
    chunks = r->plans.lowered.ranks;
    first = r->plans.compiled[ITERATION_WARMUP].plan.ranks;
    recent_plans_keep(recent, r, r, true);
  }
  recent_plans_release(recent);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
