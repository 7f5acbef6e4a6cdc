/* Times of a rank whose left-out turns have no rows, beside a list of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/engine/op_times.h"

enum { OPS = 100, BEGIN = 30, BY = 7, TURNS = 6, AFTER = BEGIN + TURNS * BY, TURN_PS = 1000 };

/* Turns of BY ops begin after BEGIN - BY; the ops after the turns are not like them. */
static op_time expected(uint32_t op)
{
  if (op >= BEGIN && op < AFTER) {
    op_time before = expected(op - BY);
    return (op_time){ before.start_ps + TURN_PS, before.end_ps + TURN_PS };
  }
  int64_t begin_ps = 130 * op + op % 3;
  return (op_time){ begin_ps, begin_ps + op % 5 };
}

static void write_rows(op_times *t, uint32_t begin, uint32_t end)
{
  op_times_reach(t, end, OPS);
  for (uint32_t i = begin; i < end; i++)
    *op_time_row(t, i) = expected(i);
}

static void assert_all(const op_times *t)
{
  for (uint32_t i = 0; i < OPS; i++) {
    op_time found = op_time_at(t, i), right = expected(i);
    assert_int_equal(found.start_ps, right.start_ps);
    assert_int_equal(found.end_ps, right.end_ps);
  }
}

/* Of `rows` rows at first, and `rows_then` in the end. */
static void check(uint32_t rows, bool moves, uint32_t rows_then)
{
  op_times t = { 0 };
  op_times_reserve(&t, rows);
  write_rows(&t, 0, BEGIN);
  if (moves)
    op_times_move(&t, &(moved_ops){ BEGIN, TURNS * BY, BY, TURN_PS });
  else
    write_rows(&t, BEGIN, AFTER);
  write_rows(&t, AFTER, AFTER + 1);
  write_rows(&t, AFTER + 1, OPS);
  assert_all(&t);
  assert_int_equal(t.capacity, rows_then);
  /* Without the turns left out there are more rows. */
  op_times_forget(&t);
  write_rows(&t, 0, AFTER);
  write_rows(&t, AFTER, OPS);
  assert_all(&t);
  op_times_release(&t);
}

static void test_left_out_turns_need_no_rows(void **state)
{
  (void)state;
  check(OPS - TURNS * BY, true, OPS - TURNS * BY);
  check(OPS, false, OPS);
}

static void test_more_rows_than_expected(void **state)
{
  (void)state;
  check(OPS - TURNS * BY - 1, true, OPS - TURNS * BY);
  check(BEGIN, true, OPS - TURNS * BY);
  check(BEGIN - 1, true, OPS);
  check(OPS - TURNS * BY, false, OPS);
  check(0, false, OPS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_left_out_turns_need_no_rows),
    cmocka_unit_test(test_more_rows_than_expected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
