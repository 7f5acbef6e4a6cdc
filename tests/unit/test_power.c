/* The clock of a GPU at its power limit, against hand computation. */
#include "sim/engine/power.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FAST  POWER_FAST_PS
#define SLOW  POWER_SLOW_PS
#define SLICE (FAST / 6)
#define AHEAD POWER_AHEAD_PS

/* 100 W between kernels, at most 500 W. */
static machine limited(void)
{
  machine m;
  memset(&m, 0, sizeof m);
  m.gpu.power_limit_w = 500;
  m.gpu.power_base_w = 100;
  return m;
}

/* What draws so much for so long, nJ. */
static int64_t work(int64_t watts, int64_t ps)
{
  return ceil_div(watts * ps, 1000);
}

/* Kernels of `watts` from begin_ps to end_ps of each step. */
static int64_t excess_ppm(const machine *m, int64_t watts, int64_t begin_ps, int64_t end_ps,
                          int64_t step_ps, int64_t at_ps)
{
  power_curve c = power_curve_new(step_ps);
  power_curve_add(&c, STREAM_COMPUTE, begin_ps, end_ps, work(watts, end_ps - begin_ps));
  int64_t ppm = power_curve_excess_ppm(&c, m, at_ps);
  power_curve_free(&c);
  return ppm;
}

/* Short steps: 400 W of kernels are just what is left; 600 W are 700 W of 500 W. */
static void test_demand(void **state)
{
  (void)state;
  machine m = limited();
  int64_t step = FAST / 2;
  assert_int_equal(excess_ppm(&m, 400, 0, step, step, 0), 0);
  assert_int_equal(excess_ppm(&m, 600, 0, step, step, 0), 400000);
  assert_int_equal(excess_ppm(&m, 1200, 0, step / 2, step, step), 400000);
  assert_int_equal(excess_ppm(&m, 1000, 0, SLICE / 5, SLICE / 5, SLICE / 5), 1200000);
  assert_int_equal(excess_ppm(&m, 0, 0, step, step, 0), 0);
  m.gpu.power_limit_w = 0;
  assert_int_equal(excess_ppm(&m, 600, 0, step, step, 0), 0);
}

/* What the GPU draws between kernels may be too much by itself, and out of all proportion. */
static void test_base(void **state)
{
  (void)state;
  machine m = limited();
  m.gpu.power_base_w = 600;
  assert_int_equal(excess_ppm(&m, 0, 0, 0, FAST, 0), 200000);
  m.gpu.power_base_w = 1000000;
  m.gpu.power_limit_w = 1;
  assert_int_equal(excess_ppm(&m, 0, 0, 0, FAST, 0), INT32_MAX);
}

/* A GPU that waits for half of a long step has its full clock again, until it has worked for a
 * while. Of both windows 600 W make +400,000 ppm, and 0 W -800,000. Windows end AHEAD later. */
static void test_windows(void **state)
{
  (void)state;
  machine m = limited();
  int64_t half = 2 * SLOW, step = 4 * SLOW;
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, 0), 0);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, 5 * SLICE - AHEAD), 0);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, SLOW / 2 - AHEAD), 200000);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, 3 * SLOW / 4 - AHEAD), 300000);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, 3 * SLOW / 2), 400000);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, half - AHEAD), 400000);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, half + 3 * SLICE), 0);
}

/* The step repeats. After its first 10 ms the fast window has 50 ms of the step before: (5 x
 * 400,000 - 800,000) / 6, and the slow one 99 of 100 parts. Work that begins the next step is ahead
 * of this one's end. */
static void test_step_before(void **state)
{
  (void)state;
  machine m = limited();
  int64_t half = 2 * SLOW, step = 4 * SLOW;
  int64_t after_10_ms = (2 * 200000 + 388000) / 3;
  assert_int_equal(excess_ppm(&m, 600, half, step, step, SLICE - AHEAD), after_10_ms);
  assert_int_equal(excess_ppm(&m, 600, half, step, step, 3 * SLICE), 0);
  assert_int_equal(excess_ppm(&m, 600, half, step, step, step - AHEAD), 400000);
  assert_int_equal(excess_ppm(&m, 600, half, step, step, step),
                   excess_ppm(&m, 600, half, step, step, 0));
  assert_int_equal(excess_ppm(&m, 9000, 0, AHEAD, step, step), (2 * 700000 - 710000) / 3);
}

/* Kernels of all streams add up; one that is spread over a long time loses nothing. */
static void test_sum(void **state)
{
  (void)state;
  machine m = limited();
  int64_t step = FAST - SLICE, spread = work(200, step) + 7, brief = work(1, step);
  power_curve c = power_curve_new(step);
  power_curve_add(&c, STREAM_COMPUTE, 0, step, spread);
  for (int64_t i = 0; i < 5; i++)
    power_curve_add(&c, STREAM_D2H, i * SLICE + 1, i * SLICE + 2, brief);
  power_curve_add(&c, STREAM_H2D, SLICE, SLICE, 1000);
  power_curve_add(&c, STREAM_H2D, step - SLICE, step, work(600, step) - spread - 5 * brief);
  assert_int_equal(power_curve_excess_ppm(&c, &m, 0), 400000);
  assert_int_equal(power_curve_excess_ppm(&c, &m, step), 400000);
  power_curve_free(&c);
}

/* Equal micro-batches: the same time in each has the same excess, to the ppm, as long as the
 * windows hold nothing else, with any period. */
static void test_period(void **state)
{
  (void)state;
  enum { MICRO_BATCHES = 300 };
  machine m = limited();
  int64_t period = 7 * PS_PER_MS + 123457, step = MICRO_BATCHES * period + 3 * SLICE;
  power_curve c = power_curve_new(step);
  for (int64_t i = 0; i < MICRO_BATCHES; i++) {
    power_curve_add(&c, STREAM_COMPUTE, i * period, i * period + 3 * PS_PER_MS + 1, 1800000011);
    power_curve_add(&c, STREAM_COMPUTE, i * period + 4 * PS_PER_MS, (i + 1) * period, 2500000007);
  }
  for (int64_t into = 0; into < period; into += PS_PER_MS + 7) {
    int64_t first = power_curve_excess_ppm(&c, &m, 160 * period + into);
    assert_true(first > 0);
    for (int64_t i = 161; i < MICRO_BATCHES - 1; i++)
      assert_int_equal(power_curve_excess_ppm(&c, &m, i * period + into), first);
  }
  power_curve_free(&c);
}

/* A curve that was asked for other times, far away or near, answers as a new one does. */
static void test_any_order(void **state)
{
  (void)state;
  enum { KERNELS = 1000 };
  machine m = limited();
  int64_t step = KERNELS * SLICE / 5;
  power_curve asked = power_curve_new(step), fresh = power_curve_new(step);
  for (int64_t i = 0; i < KERNELS; i++) {
    int64_t begin_ps = i * (SLICE / 5), end_ps = begin_ps + (i * i % 7 + 1) * (SLICE / 35);
    power_curve_add(&asked, STREAM_COMPUTE, begin_ps, end_ps, work(900 + i % 300, SLICE / 7));
    power_curve_add(&fresh, STREAM_COMPUTE, begin_ps, end_ps, work(900 + i % 300, SLICE / 7));
  }
  int64_t most = 0;
  for (int64_t i = 0; i < KERNELS; i++) {
    int64_t at_ps = i * i * 7919 % step;
    memset(fresh.streams[STREAM_COMPUTE].begun, 0, sizeof fresh.streams[STREAM_COMPUTE].begun);
    int64_t ppm = power_curve_excess_ppm(&fresh, &m, at_ps);
    assert_int_equal(power_curve_excess_ppm(&asked, &m, at_ps), ppm);
    most = max_i64(most, ppm);
  }
  assert_true(most > 0);
  power_curve_free(&asked);
  power_curve_free(&fresh);
}

/* From one time to another: no less than at any time between. The windows of all of them hold what lies
 * between the first one's begin and the last one's end. */
static void test_most(void **state)
{
  (void)state;
  machine m = limited();
  int64_t half = 2 * SLOW, step = 4 * SLOW;
  power_curve c = power_curve_new(step);
  power_curve_add(&c, STREAM_COMPUTE, 0, half, work(600, half));
  int64_t from_ps = SLOW - SLICE - AHEAD, most = power_curve_most_ppm(&c, &m, from_ps, SLOW);
  for (int64_t at_ps = from_ps; at_ps <= SLOW; at_ps += SLICE / 7)
    assert_in_range(power_curve_excess_ppm(&c, &m, at_ps), 1, most);
  assert_int_equal(power_curve_most_ppm(&c, &m, half - AHEAD, half - AHEAD), 400000);
  assert_int_equal(power_curve_most_ppm(&c, &m, half - AHEAD - SLICE, half - AHEAD),
                   (2 * 600000 + 412000) / 3);
  assert_int_equal(power_curve_most_ppm(&c, &m, half + 3 * SLICE, step - AHEAD), 0);
  power_curve_free(&c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_demand),  cmocka_unit_test(test_base),
    cmocka_unit_test(test_windows), cmocka_unit_test(test_step_before),
    cmocka_unit_test(test_sum),     cmocka_unit_test(test_period),
    cmocka_unit_test(test_most),    cmocka_unit_test(test_any_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
