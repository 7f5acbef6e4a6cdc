/* A prediction compared with a measurement: errors of ops, steps and ranks, of traces made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "traces/timing.h"

enum { RANKS = 3, MOST_OPS = 100 };

/* Texts are compared as pointers. */
static const char kernel[] = "kernel", gemm[] = "gemm", compute[] = "compute", no_text[] = "";

/* Traces of RANKS ranks; all figures are unknown. */
typedef struct two_sides {
  arena memory;
  trace of[TIMING_SIDES];
  trace_figures figures[TIMING_SIDES][RANKS];
  int64_t steps_ps[TIMING_SIDES][4];
} two_sides;

static void begin(two_sides *s, uint32_t ranks, uint32_t steps)
{
  *s = (two_sides){ .memory = { 0 } };
  for (int side = 0; side < TIMING_SIDES; side++) {
    s->of[side] = (trace){ .header = { side == PREDICTED ? "sim" : "cuda", "s", ranks, steps },
                           .figures = s->figures[side],
                           .steps_ps = s->steps_ps[side] };
    for (uint32_t r = 0; r < ranks; r++)
      s->figures[side][r] = trace_no_figures();
  }
}

static void end(two_sides *s)
{
  for (int side = 0; side < TIMING_SIDES; side++)
    ARRAY_FREE(&s->of[side].ops);
  arena_release(&s->memory);
}

static void put(two_sides *s, timing_side side, int64_t duration_ps)
{
  trace *t = &s->of[side];
  int64_t begin_ps = t->ops.count == 0 ? 0 : t->ops.items[t->ops.count - 1].end_ps;
  uint32_t op = t->ops.count;
  *ARRAY_PUSH(&t->ops) = (trace_op){ .op = op,
                                     .kind = kernel,
                                     .name = gemm,
                                     .call = no_text,
                                     .stream = compute,
                                     .module = no_text,
                                     .phase = no_text,
                                     .begin_ps = begin_ps,
                                     .end_ps = begin_ps + duration_ps };
}

/* The same op in both. */
static void put_both(two_sides *s, const char *kind, const char *stream, const char *call,
                     int64_t begin_ps, int64_t end_ps)
{
  for (int side = 0; side < TIMING_SIDES; side++) {
    put(s, (timing_side)side, 0);
    trace_op *o = &s->of[side].ops.items[s->of[side].ops.count - 1];
    o->kind = kind;
    o->name = kind == kernel ? gemm : kind;
    o->stream = stream;
    o->call = call;
    o->begin_ps = begin_ps;
    o->end_ps = end_ps;
  }
}

/* Two copies out overlap each other and the kernels; kernels of other streams hide nothing. */
static void test_exposed_copies(void **state)
{
  (void)state;
  static const char d2h[] = "d2h", h2d[] = "h2d", comm[] = "comm";
  two_sides s;
  begin(&s, 1, 1);
  put_both(&s, kernel, compute, no_text, 0, 10);
  put_both(&s, kernel, compute, no_text, 10, 20);
  put_both(&s, d2h, d2h, "100 bytes", 5, 15);
  put_both(&s, d2h, d2h, "50 bytes", 12, 25);
  put_both(&s, h2d, h2d, "7 bytes", 30, 40);
  put_both(&s, kernel, comm, no_text, 30, 36);
  timing t = trace_timing(&s.of[PREDICTED], &s.of[MEASURED], &s.memory);
  for (int side = 0; side < TIMING_SIDES; side++) {
    const rank_timing *r = &t.ranks[0];
    assert_int_equal(r->compute_ps[side], 20);
    assert_memory_equal(&r->d2h[side], (&(copy_timing){ 150, 20, 5 }), sizeof r->d2h[side]);
    assert_memory_equal(&r->h2d[side], (&(copy_timing){ 7, 10, 10 }), sizeof r->h2d[side]);
  }
  static const struct {
    const char *name;
    uint32_t count;
    int64_t total_ps;
  } classes[] = { { gemm, 3, 26 }, { d2h, 2, 23 }, { h2d, 1, 10 } };
  assert_int_equal(t.class_count, 3);
  for (int i = 0; i < 3; i++) {
    assert_ptr_equal(t.classes[i].name, classes[i].name);
    assert_int_equal(t.classes[i].count, classes[i].count);
    assert_int_equal(t.classes[i].total_ps[MEASURED], classes[i].total_ps);
  }
  end(&s);
}

static void test_median_leaves_the_first_step_out(void **state)
{
  (void)state;
  static const int64_t firsts_ps[] = { 1, 9 };
  two_sides s;
  begin(&s, 1, 4);
  int64_t *steps_ps = s.steps_ps[PREDICTED];
  for (int i = 0; i < 2; i++) {
    memcpy(steps_ps, (int64_t[]){ firsts_ps[i], 5, 4, 6 }, 4 * sizeof *steps_ps);
    s.of[PREDICTED].header.steps = 4;
    assert_int_equal(median_step_ps(&s.of[PREDICTED]), 5);
    s.of[PREDICTED].header.steps = 1;
    assert_int_equal(median_step_ps(&s.of[PREDICTED]), firsts_ps[i]);
  }
  end(&s);
}

/* Op i is predicted i permille too long or, if i is odd, too short. */
static void test_percentiles_of_a_class(void **state)
{
  (void)state;
  two_sides s;
  begin(&s, 1, 1);
  for (int i = 0; i <= MOST_OPS; i++) {
    put(&s, MEASURED, 1000);
    put(&s, PREDICTED, 1000 + (i % 2 == 0 ? i : -i));
  }
  timing t = trace_timing(&s.of[PREDICTED], &s.of[MEASURED], &s.memory);
  assert_int_equal(t.class_count, 1);
  assert_int_equal(t.classes[0].count, MOST_OPS + 1);
  assert_int_equal(t.classes[0].median_error_ppm, 0);
  assert_int_equal(t.classes[0].p95_error_ppm, 95000);
  assert_int_equal(t.classes[0].total_ps[MEASURED], 1000 * (MOST_OPS + 1));
  assert_int_equal(t.classes[0].total_ps[PREDICTED], 1000 * (MOST_OPS + 1) + MOST_OPS / 2);
  assert_int_equal(t.worst_count, TIMING_WORST);
  assert_int_equal(t.worst[0].op[PREDICTED]->op, MOST_OPS);
  assert_int_equal(t.worst[TIMING_WORST - 1].op[PREDICTED]->op, MOST_OPS + 1 - TIMING_WORST);
  end(&s);
}

static void test_error_is_of_the_measured(void **state)
{
  (void)state;
  assert_int_equal(error_ppm(150, 100), 500000);
  assert_int_equal(error_ppm(50, 100), -500000);
  assert_int_equal(error_ppm(50, 0), 0);
  assert_int_equal(error_ppm(INT64_MAX / 2, INT64_MAX), -500000);
}

/* The gates of `compare` look at the worst rank, wherever it is. */
static void test_worst_rank(void **state)
{
  (void)state;
  for (uint32_t worst = 0; worst < RANKS; worst++) {
    two_sides with, without;
    begin(&with, RANKS, 1);
    begin(&without, RANKS, 1);
    for (uint32_t r = 0; r < RANKS; r++)
      for (int side = 0; side < TIMING_SIDES; side++) {
        with.figures[side][r].live_peak_bytes = 1000;
        without.figures[side][r].live_peak_bytes = 2000;
      }
    with.figures[PREDICTED][worst].live_peak_bytes = 900; /* saves 1100, not 1000 */
    timing base = trace_timing(&without.of[PREDICTED], &without.of[MEASURED], &without.memory);
    timings t = { trace_timing(&with.of[PREDICTED], &with.of[MEASURED], &with.memory), &base };
    int64_t ppm = 0;
    assert_true(timing_peak_error_ppm(&t, &ppm));
    assert_int_equal(ppm, 100000);
    assert_true(timing_ratio_ppm(&t, &ppm));
    assert_int_equal(ppm, 1000000 - 90909);
    end(&with);
    end(&without);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_median_leaves_the_first_step_out),
    cmocka_unit_test(test_exposed_copies),
    cmocka_unit_test(test_percentiles_of_a_class),
    cmocka_unit_test(test_error_is_of_the_measured),
    cmocka_unit_test(test_worst_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
