/*
 * What linears with sequence parallelism exchange. In backward a column-parallel one gathers its input beside
 * the product of the input's gradient, and sums that beside the product of the weight's. With tp_comm_overlap
 * other products run beside exchanges, too, in parts.
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
  run r;
  run_begin(&r, SMALL_DENSE, TENSOR_PARALLEL, ITERATION_STEADY);
  const plan *p = r.plan;
  uint32_t gathers = 0;
  for (uint32_t i = 0; i < p->ranks[0].ops.count; i++) {
    if (!is_collective(p, &p->ranks[0].ops.items[i], STREAM_COMM, COLLECTIVE_ALL_GATHER)) continue;
    assert_beside(p, i);
    gathers++;
  }
  assert_int_equal(gathers, 2 * 2 + 1); /* two linears of two layers, and the output layer */
  run_end(&r);
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
    run r;
    run_begin(&r, SMALL_DENSE, rows[i].changes, ITERATION_STEADY);
    assert_int_equal(gathers_of(r.plan, rows[i].fp8_bytes), rows[i].fp8);
    assert_int_equal(gathers_of(r.plan, 2 * ELEMENTS), OF_OTHERS + IN_LAYERS - rows[i].fp8);
    run_end(&r);
  }
}

/* ---- beside products, in user buffers -------------------------------------------------------- */

#define OVERLAPPING                                                                                \
  "parallel: {world_size: 4, tensor_model_parallel_size: 4, sequence_parallel: true,\n"            \
  "  tp_comm_overlap: true"

/* The ops of one linear in one direction, from its first copy, product or exchange on: c a copy, p a part of
 * a product, P a whole one, s a shift, S a sum of parts, R a scatter and G a gather on the comm stream; > and
 * < that comm waits for compute, and the reverse. */
static void order_of(const plan *p, const char *module, mark_kind direction, char *order,
                     size_t size)
{
  const rank_plan *r = &p->ranks[0];
  mark_kind now = MARK_SETUP;
  *order = '\0';
  for (uint32_t i = 0; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    const plan_site *site = &p->sites.items[o->site];
    const plan_call *c = &p->calls.items[o->arg];
    const char *what = "";
    if (o->kind == OP_MARK) now = (mark_kind)r->marks.items[o->arg].kind;
    bool own = site->layer == 0 && strcmp(site->module, module) == 0;
    if (now != direction || (!own && !(o->kind == OP_WAIT && *order != '\0'))) continue;
    if (o->kind == OP_WAIT)
      what = o->stream == STREAM_COMM ? ">" : o->stream == STREAM_COMPUTE ? "<" : "";
    if (own && o->kind == OP_KERNEL)
      what = c->kind == KERNEL_COPY          ? "c"
             : c->kind == KERNEL_COLUMN_SUMS ? "S"
             : c->kind != KERNEL_GEMM        ? ""
             : c->dims[GEMM_PARTS] > 0       ? "p"
                                             : "P";
    if (own && o->kind == OP_COLLECTIVE)
      what = c->kind == COLLECTIVE_SHIFT ? "s" : c->kind == COLLECTIVE_REDUCE_SCATTER ? "R" : "G";
    assert_true(strlen(order) + strlen(what) < size);
    strcat(order, what);
  }
}

/* A linear waits for nothing after its last op: what follows is another's. */
static void assert_begins(const char *order, const char *expected)
{
  char head[64] = "";
  assert_true(strlen(expected) < sizeof head);
  strncat(head, order, strlen(expected));
  assert_string_equal(head, expected);
}

static void test_products_run_beside_exchanges(void **state)
{
  static const struct {
    const char *changes, *module;
    mark_kind direction;
    const char *order;
  } rows[] = {
    { OVERLAPPING "}\n", "mlp.linear_fc1", MARK_FORWARD, "c>ps<ps<ps<p" },
    { OVERLAPPING "}\n", "mlp.linear_fc1", MARK_BACKWARD, "c>GP<>RP<c" },
    { OVERLAPPING "}\n", "mlp.linear_fc2", MARK_FORWARD, "p>Rp>Rp>Rp>R<" },
    { OVERLAPPING "}\n", "mlp.linear_fc2", MARK_BACKWARD, "c>ps<ps<ps<pP" },
    { OVERLAPPING ", tp_comm_overlap_rs_method: ring_exchange}\n", "mlp.linear_fc2", MARK_FORWARD,
      "p>sp>sp>sp<S" },
    { OVERLAPPING ", tp_comm_overlap_rs: false}\n", "mlp.linear_fc2", MARK_FORWARD, "PR" },
    { OVERLAPPING ", tp_comm_overlap_ag: false}\n", "mlp.linear_fc1", MARK_FORWARD, "GP" },
    { OVERLAPPING ", tp_comm_overlap_disable_fc1: true}\n", "mlp.linear_fc1", MARK_FORWARD, "GP" },
    { OVERLAPPING ", tp_comm_overlap_disable_qkv: true}\n", "mlp.linear_fc1", MARK_FORWARD,
      "c>ps<ps<ps<p" },
    { OVERLAPPING ", tp_comm_bulk_dgrad: false}\n", "mlp.linear_fc1", MARK_BACKWARD, "GP<>RP<c" },
    { OVERLAPPING ", tp_comm_bulk_wgrad: false}\n", "mlp.linear_fc1", MARK_BACKWARD, "c>GP<>RP<" },
    /* Both copies are gathered: the second one behind the ring. */
    { OVERLAPPING "}\ntraining: {fp8_format: hybrid, fp8_recipe: mxfp8}\n", "mlp.linear_fc2",
      MARK_BACKWARD, "cc>ps<ps<ps<pG<P" },
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    run r;
    char order[256];
    run_begin(&r, SMALL_DENSE, rows[i].changes, ITERATION_STEADY);
    order_of(r.plan, rows[i].module, rows[i].direction, order, sizeof order);
    assert_begins(order, rows[i].order);
    run_end(&r);
  }
}

/* What the driver gives beside the allocator: six buffers for what is gathered, four for what is summed, of
 * 4096 x 1024; since Transformer Engine 2.7 two more. */
static void test_bytes_of_user_buffers(void **state)
{
  enum { ELEMENTS = 4096 * 1024, RANKS = 4 };
  static const struct {
    const char *changes;
    int64_t bytes;
  } rows[] = {
    { OVERLAPPING "}\nsoftware: {container: 'pytorch:25.05-py3'}\n", ELEMENTS * 2 * (6 + 4) },
    { OVERLAPPING "}\n", ELEMENTS * 2 * (6 + 4 + 2) },
    { OVERLAPPING ", tp_comm_overlap_rs_method: ring_exchange}\n",
      ELEMENTS * 2 * (8 + 2) + 2 * ELEMENTS * 2 / RANKS * (2 * RANKS - 1) },
    { OVERLAPPING "}\ntraining: {fp8_format: hybrid, fp8_recipe: delayed}\n",
      ELEMENTS * 8 + ELEMENTS * 2 * 4 },
    { TENSOR_PARALLEL, 0 },
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    run r;
    run_begin(&r, SMALL_DENSE, rows[i].changes, ITERATION_STEADY);
    int64_t bytes = 0;
    const buffer_array *buffers = &r.rank->buffers;
    for (uint32_t b = 0; b < buffers->count; b++)
      if (buffers->items[b].purpose == CLASS_DRIVER) bytes += buffers->items[b].bytes;
    assert_int_equal(bytes, rows[i].bytes);
    assert_int_equal(compile_driver_bytes(r.settings), rows[i].bytes);
    run_end(&r);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gathers_are_beside_products),
    cmocka_unit_test(test_gathers_are_fp8),
    cmocka_unit_test(test_products_run_beside_exchanges),
    cmocka_unit_test(test_bytes_of_user_buffers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
