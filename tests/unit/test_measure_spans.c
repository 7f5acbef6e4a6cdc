/* From launches and what ran to spans of ops (cuda/measure/spans.h). */
#include "cuda/measure/spans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sim/base/array.h"

enum { OPS = 6 };

typedef struct scene {
  activity_array activities;
  claim_array claims;
  measure_span spans[2][OPS];
  uint32_t captured[2][OPS];
  uint32_t graph_first[2][OPS + 1];
  rank_spans ranks[2];
} scene;

static int set_up(void **state)
{
  static scene s;
  memset(&s, 0, sizeof s);
  for (int i = 0; i < 2; i++)
    s.ranks[i] = (rank_spans){ OPS, s.spans[i], s.captured[i], s.graph_first[i] };
  *state = &s;
  return 0;
}

static int tear_down(void **state)
{
  scene *s = *state;
  ARRAY_FREE(&s->activities);
  ARRAY_FREE(&s->claims);
  return 0;
}

static void ran(scene *s, uint32_t launch, int64_t begin_ns, int64_t end_ns)
{
  *ARRAY_PUSH(&s->activities) =
      (activity){ .launch = launch, .device = 3, .begin_ns = begin_ns, .end_ns = end_ns };
}

static void claims(scene *s, uint32_t launch, uint32_t rank, uint32_t op, bool of_graph)
{
  *ARRAY_PUSH(&s->claims) = (claim){ launch, rank, op, of_graph };
}

static measure_tally join(scene *s)
{
  return spans_join(&s->activities, &s->claims, s->ranks);
}

static void assert_span(const measure_span *s, int64_t begin_ns, int64_t end_ns, uint32_t launches)
{
  assert_int_equal(s->begin_ns, begin_ns);
  assert_int_equal(s->end_ns, end_ns);
  assert_int_equal(s->launches, launches);
}

/* An op's span is that of all it launched, in any order; calls that launch nothing, and
 * activities without an op, belong to no op. */
static void test_ops(void **state)
{
  scene *s = *state;
  ran(s, 9, 700, 800);
  ran(s, 4, 100, 150);
  ran(s, 5, 50, 120);
  ran(s, 6, 10, 20);
  ran(s, 8, 300, 400);
  claims(s, 8, 1, 2, false);
  claims(s, 3, 0, 1, false);
  claims(s, 5, 0, 2, false);
  claims(s, 4, 0, 2, false);
  measure_tally t = join(s);
  assert_int_equal(t.records, 3);
  assert_int_equal(t.foreign, 2);
  assert_span(&s->spans[0][2], 50, 150, 2);
  assert_int_equal(s->spans[0][2].device, 3);
  assert_span(&s->spans[0][1], 0, 0, 0);
  assert_span(&s->spans[1][2], 300, 400, 1);
}

static void capture(scene *s)
{
  s->captured[1][1] = 2;
  s->captured[1][3] = 1;
  s->graph_first[1][5] = 1;
  claims(s, 7, 1, 5, true);
  ran(s, 7, 40, 50);
  ran(s, 7, 20, 30);
}

/* What a graph ran is dealt out in order. */
static void test_graph(void **state)
{
  scene *s = *state;
  capture(s);
  ran(s, 7, 5, 10);
  measure_tally t = join(s);
  assert_int_equal(t.records, 3);
  assert_span(&s->spans[1][1], 5, 30, 2);
  assert_span(&s->spans[1][2], 0, 0, 0);
  assert_span(&s->spans[1][3], 40, 50, 1);
}

/* If something of it is missing, each op that was captured has the span of all. */
static void test_part_of_a_graph(void **state)
{
  scene *s = *state;
  capture(s);
  join(s);
  assert_span(&s->spans[1][1], 20, 50, 0);
  assert_span(&s->spans[1][2], 0, 0, 0);
  assert_span(&s->spans[1][3], 20, 50, 0);
}

static void test_nothing(void **state)
{
  measure_tally t = join(*state);
  assert_int_equal(t.records + t.foreign + t.dropped, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_ops, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_graph, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_part_of_a_graph, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_nothing, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
