/* Waits around copies, each kind of order with its twin that lacks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/base/array.h"
#include "traces/import/copy_waits.h"
#include "traces/import/real_run.h"

enum { COMPUTE, COPIES, STREAMS, EVENT = 0, COPY = 0, FIRST = 3, SECOND = 4 };

static void put(action_array *a, action_kind kind, uint32_t stream, uint32_t number, uint32_t pass)
{
  *ARRAY_PUSH(a) = (action){ kind, stream, number, pass };
}

static void edge(action_array *a, uint32_t from, uint32_t to)
{
  put(a, ACTION_RECORD, from, EVENT, 0);
  put(a, ACTION_WAIT, to, EVENT, 0);
}

static copy_wait last_copy(action_array *a, const uint8_t *kinds)
{
  copy_wait waits[2];
  find_copy_waits(a, kinds, STREAMS, COMPUTE, waits);
  ARRAY_FREE(a);
  return waits[COPY];
}

static void copy_waits_for_compute(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    action_array a = { 0 };
    put(&a, ACTION_WORK, COMPUTE, 0, FIRST);
    if (waits) edge(&a, COMPUTE, COPIES);
    put(&a, ACTION_COPY, COPIES, COPY, FIRST);
    assert_int_equal(last_copy(&a, NULL).before, waits ? BEFORE_WAITS : BEFORE_DOES_NOT);
  }
}

/* The wait of the copy before it does not count, unless compute did nothing since. */
static void copy_waits_again(void **state)
{
  static const copy_before found[] = { BEFORE_NOTHING_NEW, BEFORE_DOES_NOT, BEFORE_WAITS };
  (void)state;
  for (int works = 0; works < 3; works++) {
    action_array a = { 0 };
    put(&a, ACTION_WORK, COMPUTE, 0, FIRST);
    edge(&a, COMPUTE, COPIES);
    put(&a, ACTION_COPY, COPIES, 1, FIRST);
    if (works) put(&a, ACTION_WORK, COMPUTE, 0, FIRST);
    if (works > 1) edge(&a, COMPUTE, COPIES);
    put(&a, ACTION_COPY, COPIES, COPY, FIRST);
    assert_int_equal(last_copy(&a, NULL).before, found[works]);
  }
}

static void compute_waits_for_the_copy(void **state)
{
  (void)state;
  for (int waits = 0; waits < 2; waits++) {
    action_array a = { 0 };
    put(&a, ACTION_COPY, COPIES, COPY, FIRST);
    put(&a, ACTION_WORK, COMPUTE, 0, FIRST);
    if (waits) edge(&a, COPIES, COMPUTE);
    put(&a, ACTION_WORK, COMPUTE, 0, SECOND);
    assert_int_equal(last_copy(&a, NULL).awaited, waits ? SECOND : AWAITED_NEVER);
  }
}

/* An event that was recorded before the copy says nothing of it. */
static void event_is_recorded_too_early(void **state)
{
  (void)state;
  action_array a = { 0 };
  put(&a, ACTION_RECORD, COPIES, EVENT, 0);
  put(&a, ACTION_COPY, COPIES, COPY, FIRST);
  put(&a, ACTION_WAIT, COMPUTE, EVENT, 0);
  put(&a, ACTION_WORK, COMPUTE, 0, SECOND);
  assert_int_equal(last_copy(&a, NULL).awaited, AWAITED_NEVER);
}

static void host_waits(void **state)
{
  static const action_kind kinds[] = { ACTION_EVENT_DONE, ACTION_STREAM_DONE, ACTION_ALL_DONE };
  (void)state;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    action_array a = { 0 };
    put(&a, ACTION_COPY, COPIES, COPY, FIRST);
    put(&a, ACTION_RECORD, COPIES, EVENT, 0);
    put(&a, kinds[i], COPIES, EVENT, 0);
    put(&a, ACTION_WORK, COMPUTE, 0, SECOND);
    assert_int_equal(last_copy(&a, NULL).awaited, SECOND);
  }
}

static void default_stream_waits_by_itself(void **state)
{
  static const uint8_t kinds[][STREAMS] = { { REAL_STREAM_LEGACY, REAL_STREAM_BLOCKING },
                                            { REAL_STREAM_LEGACY, REAL_STREAM_ALONE } };
  (void)state;
  for (int alone = 0; alone < 2; alone++) {
    action_array a = { 0 };
    put(&a, ACTION_WORK, COMPUTE, 0, FIRST);
    put(&a, ACTION_COPY, COPIES, COPY, FIRST);
    put(&a, ACTION_WORK, COMPUTE, 0, SECOND);
    copy_wait w = last_copy(&a, kinds[alone]);
    assert_int_equal(w.before, alone ? BEFORE_DOES_NOT : BEFORE_WAITS);
    assert_int_equal(w.awaited, alone ? AWAITED_NEVER : SECOND);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(copy_waits_for_compute),
    cmocka_unit_test(copy_waits_again),
    cmocka_unit_test(compute_waits_for_the_copy),
    cmocka_unit_test(event_is_recorded_too_early),
    cmocka_unit_test(host_waits),
    cmocka_unit_test(default_stream_waits_by_itself),
  };
  return cmocka_run_group_tests_name("copy_waits", tests, NULL, NULL);
}
