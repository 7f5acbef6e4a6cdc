/* Factors between measured and expected times, from sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/fit/factors.h"

enum { A, B, C, THINGS };

static void add(factor_rows *f, const int64_t expected[THINGS], const double by[THINGS],
                int64_t more_ps)
{
  double measured = (double)more_ps;
  for (int t = 0; t < THINGS; t++)
    measured += by[t] * (double)expected[t];
  factors_begin(f, (int64_t)measured);
  for (uint32_t t = 0; t < THINGS; t++)
    factors_add(f, t, expected[t]);
}

static void assert_near(double value, double expected, double off)
{
  assert_true(value > expected - off && value < expected + off);
}

/* Each alone: its own factor, not that of the others. */
static void test_alone(void **state)
{
  (void)state;
  arena a = { 0 };
  factor_rows f = { 0 };
  const double by[THINGS] = { 0.5, 1, 3 };
  for (int t = 0; t < THINGS; t++) {
    int64_t expected[THINGS] = { 0 };
    expected[t] = 1000000;
    add(&f, expected, by, 0);
  }
  factor *found = factors_solve(&f, THINGS, &a);
  /* Pulled a third of the way to the common factor, 1.5. */
  assert_near(found[A].value, 0.5 + (1.5 - 0.5) / 3, 1e-6);
  assert_near(found[B].value, 1 + (1.5 - 1) / 3, 1e-6);
  assert_near(found[C].value, 3 + (1.5 - 3) / 3, 1e-6);
  assert_true(found[A].is_seen && found[B].is_seen && found[C].is_seen);
  factors_release(&f);
  arena_release(&a);
}

/* If all take as much longer, so does each, though no row tells them apart; a thing of no row is unseen. */
static void test_together(void **state)
{
  (void)state;
  arena a = { 0 };
  factor_rows f = { 0 };
  const double by[THINGS] = { 1.7, 1.7, 0 };
  add(&f, (int64_t[]){ 5000000, 200000, 0 }, by, 0);
  add(&f, (int64_t[]){ 5000000, 900000, 0 }, by, 0);
  factor *found = factors_solve(&f, THINGS, &a);
  assert_near(found[A].value, 1.7, 1e-6);
  assert_near(found[B].value, 1.7, 1e-6);
  assert_true(found[A].is_seen && found[B].is_seen && !found[C].is_seen);
  factors_release(&f);
  arena_release(&a);
}

/* One of many equal rows was disturbed: nothing changes. Terms of a thing add up, in any order. */
static void test_outlier(void **state)
{
  (void)state;
  arena a = { 0 };
  factor_rows f = { 0 };
  const double by[THINGS] = { 2, 2, 2 };
  for (int i = 0; i < 9; i++)
    add(&f, (int64_t[]){ 1000000, 500000, 0 }, by, i == 4 ? 900000000 : 0);
  factors_begin(&f, 3000000);
  factors_add(&f, B, 250000);
  factors_add(&f, A, 1000000);
  factors_add(&f, B, 250000);
  factor *found = factors_solve(&f, THINGS, &a);
  assert_near(found[A].value, 2, 1e-6);
  assert_near(found[B].value, 2, 1e-6);
  factors_release(&f);
  arena_release(&a);
}

/* No rows, rows of nothing, and times of nothing: factors within their bounds. */
static void test_nothing(void **state)
{
  (void)state;
  arena a = { 0 };
  factor_rows f = { 0 };
  factor *found = factors_solve(&f, THINGS, &a);
  assert_true(found[A].value == 1 && !found[A].is_seen);
  factors_begin(&f, 5);
  factors_begin(&f, 0);
  factors_add(&f, A, 1000);
  found = factors_solve(&f, THINGS, &a);
  assert_true(found[A].value > 0 && found[A].value < 0.03);
  factors_release(&f);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_alone),
    cmocka_unit_test(test_together),
    cmocka_unit_test(test_outlier),
    cmocka_unit_test(test_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
