/* For tests that compile one plan in two ways: the repeating part of a rank is the same in both. */
#ifndef OFFSIM_TESTS_UNIT_SAME_REPEATS_H
#define OFFSIM_TESTS_UNIT_SAME_REPEATS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/plan/plan.h"

static inline void assert_same_ids(const id_array *a, const id_array *b)
{
  assert_int_equal(a->count, b->count);
  if (a->count > 0) assert_memory_equal(a->items, b->items, a->count * sizeof *a->items);
}

static inline void assert_same_repeat(const plan_repeat *a, const plan_repeat *b)
{
  assert_int_equal(a->first, b->first);
  assert_int_equal(a->ops, b->ops);
  assert_int_equal(a->turns, b->turns);
  assert_int_equal(a->marks, b->marks);
  assert_int_equal(a->messages, b->messages);
  assert_int_equal(a->buffers, b->buffers);
  assert_int_equal(a->events, b->events);
  assert_same_ids(&a->earlier_buffers, &b->earlier_buffers);
  assert_same_ids(&a->earlier_events, &b->earlier_events);
}

#endif
