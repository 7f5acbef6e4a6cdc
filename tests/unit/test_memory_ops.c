/*
 * The list of the ops that take or return memory: of compiled plans whose turns repeat, beside a walk through
 * every op.
 */
#include "tests/unit/small_plan.h"
#include "tests/unit/small_runs.h"

#include "sim/engine/memory_ops.h"
#include "sim/engine/replay.h"

/* The rows of all stretches, one after the other. */
typedef struct cursor {
  const memory_ops *m;
  uint32_t next; /* stretch */
  memory_stretch rows;
} cursor;

/* NULL: there is none. */
static const memory_op *next_row(cursor *c)
{
  while (c->rows.from == c->rows.end && c->next < memory_stretches(c->m))
    c->rows = memory_stretch_of(c->m, c->next++);
  return c->rows.from < c->rows.end ? c->rows.from++ : NULL;
}

static void assert_same_uses(const cursor *a, const memory_op *x, const cursor *b,
                             const memory_op *y)
{
  assert_int_equal(x->use_count, y->use_count);
  for (uint32_t i = 0; i < x->use_count; i++) {
    const memory_use *p = &a->m->uses.items[x->first_use + i];
    const memory_use *q = &b->m->uses.items[y->first_use + i];
    assert_int_equal(p->stream, q->stream);
    assert_int_equal(memory_use_op(a->m, &a->rows, p), memory_use_op(b->m, &b->rows, q));
  }
}

static void assert_same_lists(const memory_ops *a, const memory_ops *b)
{
  cursor c = { .m = a }, d = { .m = b };
  const memory_op *x, *y;
  while (x = next_row(&c), y = next_row(&d), x != NULL && y != NULL) {
    assert_int_equal(x->op + c.rows.ops, y->op + d.rows.ops);
    assert_int_equal(x->buffer + c.rows.buffers, y->buffer + d.rows.buffers);
    assert_int_equal(x->bytes, y->bytes);
    assert_int_equal(x->bin, y->bin);
    assert_int_equal(x->kind, y->kind);
    assert_same_uses(&c, x, &d, y);
  }
  assert_true(x == NULL && y == NULL);
  assert_true(a->requested_peak_bytes > 0);
  assert_int_equal(a->requested_peak_bytes, b->requested_peak_bytes);
  assert_int_equal(a->counted.count, b->counted.count);
  for (uint32_t i = 0; i < a->counted.count; i++)
    assert_int_equal(a->counted.items[i], b->counted.items[i]);
}

/* After op `at`, with the list of repeated turns and without. */
static void assert_same_holdings(const plan *p, const memory_ops *a, const memory_ops *b,
                                 uint32_t at)
{
  arena scratch = { 0 };
  plan_modules modules = plan_modules_of(p, &scratch);
  uint32_t counts[2];
  const replay_holding *x = replay_holdings(p, &modules, a, at, &counts[0], &scratch);
  const replay_holding *y = replay_holdings(p, &modules, b, at, &counts[1], &scratch);
  assert_int_equal(counts[0], counts[1]);
  for (uint32_t i = 0; i < counts[0]; i++) {
    assert_string_equal(x[i].module, y[i].module);
    assert_int_equal(x[i].purpose, y[i].purpose);
    assert_int_equal(x[i].buffers, y[i].buffers);
    assert_int_equal(x[i].bytes, y[i].bytes);
  }
  arena_release(&scratch);
}

static void check_lists(const char *base, const char *changes)
{
  enum { APART = 7 };
  for (int kind = 0; kind < 2; kind++) {
    run r;
    run_begin(&r, base, changes, kind == 0 ? ITERATION_WARMUP : ITERATION_STEADY);
    for (uint32_t i = 0; i < r.plan->rank_count; i++) {
      rank_plan whole = r.plan->ranks[i];
      assert_true(whole.repeat.turns > 2);
      whole.repeat = (plan_repeat){ 0 };
      memory_ops repeated = memory_ops_new(&r.plan->ranks[i]), walked = memory_ops_new(&whole);
      assert_true(repeated.later_turns > 0 && walked.later_turns == 0);
      assert_same_lists(&repeated, &walked);
      for (uint32_t at = 0; at < whole.ops.count; at += APART)
        assert_same_holdings(r.plan, &repeated, &walked, at);
      memory_ops_release(&repeated);
      memory_ops_release(&walked);
    }
    run_end(&r);
  }
}

static void test_turns_that_repeat(void **state)
{
  (void)state;
  check_lists(SMALL_DENSE, SMALL_PIPELINE("1", "") "offload: {system: none}\n");
  check_lists(SMALL_DENSE, SMALL_PIPELINE("1", "") SMALL_OFFLOAD);
  check_lists(SMALL_DENSE, SMALL_PIPELINE("4", "") SMALL_OFFLOAD);
  check_lists(SMALL_MOE, SMALL_PIPELINE("4", ", expert_model_parallel_size: 1") SMALL_OFFLOAD);
  check_lists(SMALL_DENSE,
              SMALL_PIPELINE("2", ", num_layers_per_virtual_pipeline_stage: 2") SMALL_OFFLOAD);
}

/* A freed block waits for what its streams were issued last; host memory of no pool for the last copy back;
 * pageable memory for nothing. */
static void test_uses(void **state)
{
  (void)state;
  arena a = { 0 };
  plan p = plan_new(1, &a);
  rank_plan *r = &p.ranks[0];
  uint32_t block = add_buffer(r, 511, STREAM_COMPUTE), hosts[3];
  add_op(r, OP_ALLOC, STREAM_COMPUTE, block);
  for (int i = 0; i < 3; i++) {
    hosts[i] = add_buffer(r, 512, STREAM_HOST);
    add_op(r, OP_HOST_ALLOC, STREAM_HOST, hosts[i]);
  }
  r->buffers.items[hosts[1]].host_key = 1;
  r->buffers.items[hosts[2]].purpose = CLASS_PAGEABLE_HOST;
  uint32_t back = add_op(r, OP_H2D, STREAM_H2D, 0);
  uint32_t waits = add_op(r, OP_WAIT, STREAM_H2D, 0);
  uint32_t freed = add_op(r, OP_FREE, STREAM_COMPUTE, block);
  r->ops.items[freed].operands = 1u << STREAM_D2H | 1u << STREAM_H2D;
  for (int i = 0; i < 3; i++)
    add_op(r, OP_HOST_FREE, STREAM_HOST, hosts[i]);
  memory_ops m = memory_ops_new(r);
  assert_int_equal(m.ops.count, 8);
  const uint8_t kinds[] = { MEMORY_TAKE,        MEMORY_HOST_TAKE,  MEMORY_HOST_TAKE,
                            MEMORY_HOST_TAKE,   MEMORY_RETURN,     MEMORY_HOST_RETURN,
                            MEMORY_HOST_RETURN, MEMORY_HOST_RETURN };
  const uint8_t uses[] = { 0, 0, 0, 0, 2, 1, 0, 0 };
  for (int i = 0; i < 8; i++) {
    assert_int_equal(m.ops.items[i].kind, kinds[i]);
    assert_int_equal(m.ops.items[i].use_count, uses[i]);
    assert_int_equal(m.ops.items[i].bytes, 512);
    uint32_t pool = 2 * (i == 0 || i == 4 ? STREAM_COMPUTE : STREAM_HOST);
    assert_int_equal(m.ops.items[i].bin, free_bin_of(pool, 512));
  }
  assert_int_equal(m.requested_peak_bytes, 512); /* host memory is not requested */
  assert_int_equal(m.uses.count, 3);
  assert_true(m.uses.items[0].stream == STREAM_D2H && m.uses.items[0].op == MEMORY_NO_OP);
  assert_true(m.uses.items[1].stream == STREAM_H2D && m.uses.items[1].op == waits);
  assert_int_equal(m.uses.items[2].op, back);
  assert_int_equal(m.counted.count, 7); /* of the host: taken, returned; the copy */
  memory_ops_release(&m);
  plan_release(&p);
  arena_release(&a);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_turns_that_repeat),
    cmocka_unit_test(test_uses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
