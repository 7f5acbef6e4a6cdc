/*
 * What a column-parallel linear with sequence parallelism issues in backward, beside what: the gather of its
 * input beside the product of the input's gradient, the sum of that beside the product of the weight's.
 */
#include "tests/unit/small_runs.h"

#define TENSOR_PARALLEL                                                                            \
  "parallel: {world_size: 2, tensor_model_parallel_size: 2, sequence_parallel: true}\n"

static bool is_collective(const plan *p, const plan_op *o, plan_stream stream, collective_kind kind)
{
  return o->kind == OP_COLLECTIVE && o->stream == stream &&
         p->calls.items[o->arg].kind == (uint8_t)kind && p->calls.items[o->arg].group == GROUP_TP;
}

static bool reads(const rank_plan *r, const plan_op *o, uint32_t buffer)
{
  for (uint32_t i = 0; i < o->reads; i++)
    if (r->operands.items[o->operands + i] == buffer) return true;
  return false;
}

/* The ops after a gather on the comm stream, up to the product that reads what it gathers: g the product of
 * the input's gradient, w compute's wait, s the sum of that gradient, W the product of the weight's. */
static void assert_beside(const plan *p, uint32_t gather)
{
  const rank_plan *r = &p->ranks[0];
  const plan_op *first = &r->ops.items[gather];
  uint32_t whole = r->operands.items[first->operands + first->reads];
  char order[8] = "";
  for (uint32_t i = gather + 1; i < r->ops.count && strchr(order, 'W') == NULL; i++) {
    const plan_op *o = &r->ops.items[i];
    const char *what = "";
    if (o->kind == OP_KERNEL && o->stream == STREAM_COMPUTE) what = reads(r, o, whole) ? "W" : "g";
    if (o->kind == OP_WAIT && o->stream == STREAM_COMPUTE) what = "w";
    if (is_collective(p, o, STREAM_COMM, COLLECTIVE_REDUCE_SCATTER)) what = "s";
    assert_true(strlen(order) + strlen(what) < sizeof order);
    strcat(order, what);
  }
  assert_string_equal(order, "gwsW");
}

static void test_gathers_are_beside_products(void **state)
{
  (void)state;
  arena a = { 0 };
  compilation compiled;
  small_compile(&compiled, small_settings(SMALL_DENSE, TENSOR_PARALLEL, &a), ITERATION_STEADY, &a);
  const plan *p = &compiled.plan;
  uint32_t gathers = 0;
  for (uint32_t i = 0; i < p->ranks[0].ops.count; i++) {
    if (!is_collective(p, &p->ranks[0].ops.items[i], STREAM_COMM, COLLECTIVE_ALL_GATHER)) continue;
    assert_beside(p, i);
    gathers++;
  }
  assert_int_equal(gathers, 2 * 2 + 1); /* two linears of two layers, and the output layer */
  compilation_release(&compiled);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(test_gathers_are_beside_products) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
