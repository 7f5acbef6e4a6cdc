/* Which rows of a sweep a page shows: the same ones in any order of the additions, and all on the front. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/report/search_page.h"

enum { ROWS = 5 * PAGE_ROWS };

/* The slower, the smaller, but only in steps of 100 rows: the front has a row of each. */
static sweep_row row_of(uint32_t order)
{
  uint32_t time = order * 7919 % ROWS; /* a permutation, for 7919 is prime */
  sweep_row r = { .tried = { .order = order }, .step_ps = 1000 + time / 2 };
  r.verdict = order % 50 == 0 ? SWEEP_REFUSED : order % 50 == 1 ? SWEEP_DOES_NOT_FIT : SWEEP_FITS;
  r.missing_bytes = r.verdict == SWEEP_DOES_NOT_FIT ? 1 + order % 300 : 0;
  r.reserved_peak_bytes = 2 * ROWS - time / 100 + order % 5;
  return r;
}

static shown_rows shown_after(bool backwards)
{
  shown_rows s = { 0 };
  for (uint32_t i = 0; i < ROWS; i++) {
    sweep_row r = row_of(backwards ? ROWS - 1 - i : i);
    shown_rows_add(&s, &r);
  }
  shown_rows_finish(&s);
  return s;
}

static bool is_beaten(const sweep_row *r)
{
  for (uint32_t i = 0; i < ROWS; i++) {
    sweep_row o = row_of(i);
    if (o.verdict == SWEEP_FITS && o.step_ps <= r->step_ps &&
        o.reserved_peak_bytes <= r->reserved_peak_bytes &&
        (o.step_ps < r->step_ps || o.reserved_peak_bytes < r->reserved_peak_bytes ||
         o.tried.order < r->tried.order))
      return true;
  }
  return false;
}

static void test_any_order_of_additions(void **state)
{
  (void)state;
  shown_rows one = shown_after(false), other = shown_after(true);
  assert_int_equal(one.count, other.count);
  for (uint32_t i = 0; i < one.count; i++) {
    assert_int_equal(one.items[i].tried.order, other.items[i].tried.order);
    assert_true(i == 0 || one.items[i - 1].step_ps <= one.items[i].step_ps);
  }
  shown_rows_release(&one);
  shown_rows_release(&other);
}

static void test_the_front_is_complete(void **state)
{
  (void)state;
  shown_rows s = shown_after(false);
  uint32_t on_front = 0, shown = 0;
  for (uint32_t i = 0; i < ROWS; i += 3) {
    sweep_row r = row_of(i);
    if (r.verdict != SWEEP_FITS || is_beaten(&r)) continue;
    on_front++;
    for (uint32_t k = 0; k < s.count; k++)
      shown += s.items[k].tried.order == i;
  }
  assert_true(on_front > 20);
  assert_int_equal(on_front, shown);
  assert_true(s.count > PAGE_ROWS && s.count < PAGE_ROWS + 200);
  shown_rows_release(&s);
}

static void test_those_that_fit_come_first(void **state)
{
  (void)state;
  shown_rows s = { 0 };
  for (uint32_t i = 0; i < 150; i++) {
    sweep_row r = row_of(i);
    shown_rows_add(&s, &r);
  }
  shown_rows_finish(&s);
  assert_int_equal(s.count, 147); /* three were refused */
  for (uint32_t i = 0; i < s.count; i++)
    assert_int_equal(s.items[i].verdict, i < 144 ? SWEEP_FITS : SWEEP_DOES_NOT_FIT);
  assert_true(s.items[144].missing_bytes < s.items[145].missing_bytes);
  shown_rows_release(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_any_order_of_additions),
    cmocka_unit_test(test_the_front_is_complete),
    cmocka_unit_test(test_those_that_fit_come_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
