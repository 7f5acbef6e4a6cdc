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
  arena a = { 0 };
  power_curve c;
  power_curve_new(&c, step_ps, &a);
  power_curve_add(&c, begin_ps, end_ps, work(watts, end_ps - begin_ps));
  bool exceeds = power_curve_settle(&c, m);
  int64_t ppm = power_curve_excess_ppm(&c, at_ps);
  assert_true(exceeds || ppm == 0);
  arena_release(&a);
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

/* Slices are a little shorter, so that they divide the step. */
static void assert_near(int64_t ppm, int64_t expected)
{
  assert_in_range(ppm, expected - expected / 50, expected + expected / 50);
}

/* A GPU that waits for half of a long step has its full clock again, until it has worked for a
 * while. Of both windows 600 W make +400,000 ppm, and 0 W -800,000. */
static void test_windows(void **state)
{
  (void)state;
  machine m = limited();
  int64_t half = 2 * SLOW, step = 4 * SLOW;
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, 0), 0);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, 9 * SLICE / 2), 0);
  assert_near(excess_ppm(&m, 600, 0, half, step, SLOW / 2 - SLICE / 2), 200000);
  assert_near(excess_ppm(&m, 600, 0, half, step, 3 * SLOW / 4 - SLICE / 2), 300000);
  assert_near(excess_ppm(&m, 600, 0, half, step, 3 * SLOW / 2), 400000);
  assert_near(excess_ppm(&m, 600, 0, half, step, half - SLICE), 400000);
  assert_int_equal(excess_ppm(&m, 600, 0, half, step, half + 3 * SLICE), 0);
}

/* In a step's first slice the fast window has five slices of the step before: (5 x 400,000 -
 * 800,000) / 6, and the slow one 99 of 100. */
static void test_step_before(void **state)
{
  (void)state;
  machine m = limited();
  int64_t half = 2 * SLOW, step = 4 * SLOW;
  assert_near(excess_ppm(&m, 600, half, step, step, 0), (2 * 200000 + 388000) / 3);
  assert_int_equal(excess_ppm(&m, 600, half, step, step, 3 * SLICE), 0);
  assert_near(excess_ppm(&m, 600, half, step, step, step), 400000);
}

/* Kernels add up; one that is spread over many slices loses nothing. */
static void test_sum(void **state)
{
  (void)state;
  machine m = limited();
  arena a = { 0 };
  power_curve c;
  int64_t step = FAST - SLICE, spread = work(200, step) + 7, brief = work(1, step);
  power_curve_new(&c, step, &a);
  power_curve_add(&c, 0, step, spread);
  power_curve_add(&c, SLICE, SLICE, 1000);
  for (int64_t i = 0; i < 5; i++)
    power_curve_add(&c, i * SLICE + 1, i * SLICE + 2, brief);
  power_curve_add(&c, step - SLICE, step, work(600, step) - spread - 5 * brief);
  assert_true(power_curve_settle(&c, &m));
  assert_int_equal(power_curve_excess_ppm(&c, 0), 400000);
  assert_int_equal(power_curve_excess_ppm(&c, step), 400000);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_demand),      cmocka_unit_test(test_base), cmocka_unit_test(test_windows),
    cmocka_unit_test(test_step_before), cmocka_unit_test(test_sum),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
