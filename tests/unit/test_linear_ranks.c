/*
 * What linears with sequence parallelism exchange. In backward a column-parallel one gathers its input beside
 * the product of the input's gradient, and sums that beside the product of the weight's.
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

/* Gathers of a rank's part of the rows, by the bytes of that part. */
static uint32_t gathers_of(const plan *p, int64_t bytes)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->ranks[0].ops.count; i++) {
    const plan_op *o = &p->ranks[0].ops.items[i];
    if (is_collective(p, o, (plan_stream)o->stream, COLLECTIVE_ALL_GATHER))
      count += p->calls.items[o->arg].bytes == bytes;
  }
  return count;
}

/* Two layers gather the inputs of two linears, in forward and in backward, and the gradients of two others;
 * the output layer its input, twice, and the embedding its
 * gradient, in bf16. With one scale for a tensor, all that a layer gathers is fp8. */
static void test_gathers_are_fp8(void **state)
{
  enum { ELEMENTS = 4096 / 2 * 1024, SCALE_BYTES = 4, IN_LAYERS = 2 * 6, OF_OTHERS = 3 };
  static const struct {
    const char *changes;
    int64_t fp8_bytes, fp8;
  } rows[] = {
    { TENSOR_PARALLEL, ELEMENTS, 0 },
    { TENSOR_PARALLEL "training: {fp8_format: hybrid, fp8_recipe: delayed}\n", ELEMENTS,
      IN_LAYERS },
    { TENSOR_PARALLEL "training: {fp8_format: hybrid, fp8_recipe: tensorwise}\n",
      ELEMENTS + SCALE_BYTES, IN_LAYERS },
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    arena a = { 0 };
    compilation compiled;
    small_compile(&compiled, small_settings(SMALL_DENSE, rows[i].changes, &a), ITERATION_STEADY,
                  &a);
    assert_int_equal(gathers_of(&compiled.plan, rows[i].fp8_bytes), rows[i].fp8);
    assert_int_equal(gathers_of(&compiled.plan, 2 * ELEMENTS), OF_OTHERS + IN_LAYERS - rows[i].fp8);
    compilation_release(&compiled);
    arena_release(&a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gathers_are_beside_products),
    cmocka_unit_test(test_gathers_are_fp8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
