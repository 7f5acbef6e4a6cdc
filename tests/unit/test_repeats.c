/*
 * The repeating part of a rank: that of plans made by hand, in closed form, and of compiled ones beside a
 * comparison of every turn with the first, op by op.
 */
#include "tests/unit/small_plan.h"
#include "tests/unit/small_runs.h"

#include "sim/plan/repeats.h"

/* ---- every turn beside the first ---------------------------------------------------------------- */

/* Pairs of ids, looked up from the beginning. */
typedef struct pairs {
  struct pair {
    uint32_t first, later;
  } * items;
  uint32_t count, capacity;
} pairs;

/* Both ids have each other, or neither was met before. */
static void assert_pair(pairs *p, uint32_t first, uint32_t later)
{
  for (uint32_t i = 0; i < p->count; i++)
    if (p->items[i].first == first || p->items[i].later == later) {
      assert_int_equal(p->items[i].first, first);
      assert_int_equal(p->items[i].later, later);
      return;
    }
  *ARRAY_PUSH(p) = (struct pair){ first, later };
}

static void assert_same_buffer(const rank_plan *r, uint32_t first, uint32_t later)
{
  const plan_buffer *a = &r->buffers.items[first], *b = &r->buffers.items[later];
  assert_int_equal(a->bytes, b->bytes);
  assert_int_equal(a->tensor, b->tensor);
  assert_int_equal(a->purpose, b->purpose);
  assert_int_equal(a->stream, b->stream);
  assert_int_equal(a->filled, b->filled);
  assert_int_equal(a->host_key, b->host_key);
}

typedef struct names {
  pairs buffers, events;
} names;

static void assert_same_arg(const plan *p, const rank_plan *r, const plan_op *a, const plan_op *b,
                            uint32_t turn, names *n)
{
  const plan_mark *m = r->marks.items;
  const plan_message *messages = p->messages.items;
  switch (a->kind) {
  case OP_ALLOC:
  case OP_HOST_ALLOC:
    assert_int_equal(b->arg, a->arg + turn * r->repeat.buffers);
    /* fall through */
  case OP_FREE:
  case OP_HOST_FREE:
    assert_pair(&n->buffers, a->arg, b->arg);
    assert_same_buffer(r, a->arg, b->arg);
    if (a->kind == OP_FREE) assert_int_equal(a->operands, b->operands);
    return;
  case OP_RECORD:
    assert_int_equal(b->arg, a->arg + turn * r->repeat.events);
    /* fall through */
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: assert_pair(&n->events, a->arg, b->arg); return;
  case OP_MARK:
    assert_int_equal(b->arg, a->arg + turn * r->repeat.marks);
    assert_int_equal(m[a->arg].kind, m[b->arg].kind);
    assert_int_equal(m[a->arg].chunk, m[b->arg].chunk);
    return;
  case OP_SEND:
  case OP_RECV:
    assert_int_equal(b->arg, a->arg + turn * r->repeat.messages);
    assert_memory_equal(&messages[a->arg], &messages[b->arg], sizeof *messages);
    return;
  default: assert_int_equal(a->arg, b->arg);
  }
}

static void assert_same_op(const plan *p, const rank_plan *r, uint32_t first, uint32_t turn,
                           names *n)
{
  const plan_op *a = &r->ops.items[first], *b = a + turn * r->repeat.ops;
  assert_int_equal(a->kind, b->kind);
  assert_int_equal(a->stream, b->stream);
  assert_int_equal(a->site, b->site);
  assert_int_equal(a->reads, b->reads);
  assert_int_equal(a->writes, b->writes);
  assert_same_arg(p, r, a, b, turn, n);
  for (uint32_t i = 0; i < (uint32_t)a->reads + a->writes; i++) {
    uint32_t x = r->operands.items[a->operands + i], y = r->operands.items[b->operands + i];
    assert_pair(&n->buffers, x, y);
    assert_same_buffer(r, x, y);
  }
}

/* Going back turn by turn leads to the first one's id. */
static void assert_leads_back(const pairs *p, const id_array *earlier, uint32_t growth,
                              uint32_t turns)
{
  for (uint32_t i = 0; i < p->count; i++) {
    uint32_t id = p->items[i].later;
    for (uint32_t k = 0; k < turns; k++)
      id = earlier_id(earlier, growth, id);
    assert_int_equal(id, p->items[i].first);
  }
}

static void assert_repeats(const plan *p, const rank_plan *r)
{
  const plan_repeat *repeat = &r->repeat;
  assert_true(repeat_end(repeat) <= r->ops.count);
  for (uint32_t turn = 1; turn < repeat->turns; turn++) {
    names n = { 0 };
    for (uint32_t i = 0; i < repeat->ops; i++)
      assert_same_op(p, r, repeat->first + i, turn, &n);
    assert_leads_back(&n.buffers, &repeat->earlier_buffers, repeat->buffers, turn);
    assert_leads_back(&n.events, &repeat->earlier_events, repeat->events, turn);
    ARRAY_FREE(&n.buffers);
    ARRAY_FREE(&n.events);
  }
}

/* ---- compiled plans ----------------------------------------------------------------------------- */

/* `fewest`: a rank's turns, at least: of 16 micro-batches, without what is in flight. */
static void check_compiled(const char *base, const char *changes, uint32_t fewest)
{
  for (int kind = 0; kind < 2; kind++) {
    run r;
    run_begin(&r, base, changes, kind == 0 ? ITERATION_WARMUP : ITERATION_STEADY);
    for (uint32_t i = 0; i < r.plan->rank_count; i++) {
      assert_true(r.plan->ranks[i].repeat.turns >= fewest);
      assert_repeats(r.plan, &r.plan->ranks[i]);
    }
    run_end(&r);
  }
}

static void test_compiled(void **state)
{
  (void)state;
  check_compiled(SMALL_DENSE, SMALL_PIPELINE("1", "") "offload: {system: none}\n", 14);
  check_compiled(SMALL_DENSE, SMALL_PIPELINE("1", "") SMALL_OFFLOAD, 14);
  check_compiled(SMALL_DENSE, SMALL_PIPELINE("2", "") SMALL_OFFLOAD, 13);
  check_compiled(SMALL_DENSE, SMALL_PIPELINE("4", "") SMALL_OFFLOAD, 11);
  check_compiled(SMALL_MOE, SMALL_PIPELINE("4", ", expert_model_parallel_size: 1") SMALL_OFFLOAD,
                 11);
}

/* A turn of virtual stages has as many micro-batches as the pipeline has ranks. */
static void test_virtual_stages(void **state)
{
  (void)state;
  check_compiled(SMALL_DENSE,
                 SMALL_PIPELINE("2", ", num_layers_per_virtual_pipeline_stage: 2") SMALL_OFFLOAD,
                 5);
}

/* ---- plans made by hand ------------------------------------------------------------------------- */

enum { MICROBATCHES = 12, IN_FLIGHT = 2, RESIDENTS = 2 };

typedef struct made {
  arena memory;
  plan plan;
  rank_plan *rank;
  uint32_t saved[MICROBATCHES], events[MICROBATCHES];
} made;

static void add_mark(rank_plan *r, mark_kind kind, uint32_t microbatch)
{
  *ARRAY_PUSH(&r->marks) = (plan_mark){ .kind = (uint8_t)kind, .microbatch = microbatch };
  add_op(r, OP_MARK, STREAM_HOST, r->marks.count - 1);
}

static void add_operands(rank_plan *r, uint32_t op, uint32_t read, uint32_t written)
{
  r->ops.items[op].operands = r->operands.count;
  r->ops.items[op].reads = r->ops.items[op].writes = 1;
  *ARRAY_PUSH(&r->operands) = read;
  *ARRAY_PUSH(&r->operands) = written;
}

static uint32_t take_buffer(rank_plan *r)
{
  uint32_t b = add_buffer(r, 512, STREAM_COMPUTE);
  r->buffers.items[b].mark = r->marks.count - 1;
  add_op(r, OP_ALLOC, STREAM_COMPUTE, b);
  return b;
}

static void add_forward(made *m, uint32_t k)
{
  rank_plan *r = m->rank;
  add_mark(r, MARK_FORWARD, k);
  m->saved[k] = take_buffer(r);
  add_operands(r, add_kernel(&m->plan, 0, STREAM_COMPUTE, 1000), 0, m->saved[k]);
  m->events[k] = add_record(r, STREAM_COMPUTE);
  uint32_t message = add_message(&m->plan, 0, 1, 1000);
  uint32_t send = add_op(r, OP_SEND, STREAM_COMM, message);
  r->ops.items[send].operands = r->operands.count;
  r->ops.items[send].reads = 1;
  *ARRAY_PUSH(&r->operands) = m->saved[k];
}

static void add_backward(made *m, uint32_t k)
{
  rank_plan *r = m->rank;
  add_mark(r, MARK_BACKWARD, k);
  add_op(r, OP_WAIT, STREAM_COMPUTE, m->events[k]);
  add_operands(r, add_kernel(&m->plan, 0, STREAM_COMPUTE, 2000), m->saved[k], 1);
  add_op(r, OP_FREE, STREAM_COMPUTE, m->saved[k]);
}

enum { OPS_OF_FORWARD = 5, OPS_OF_BACKWARD = 4, OPS_OF_TURN = OPS_OF_FORWARD + OPS_OF_BACKWARD };

/* 1F1B of a rank that has two micro-batches in flight. */
static void make(made *m)
{
  *m = (made){ 0 };
  m->plan = plan_new(2, &m->memory);
  m->rank = &m->plan.ranks[0];
  for (int i = 0; i < RESIDENTS; i++)
    add_buffer(m->rank, 1024, STREAM_COMPUTE);
  m->rank->residents = RESIDENTS;
  for (uint32_t k = 0; k < IN_FLIGHT; k++)
    add_forward(m, k);
  for (uint32_t k = IN_FLIGHT; k < MICROBATCHES; k++) {
    add_forward(m, k);
    add_backward(m, k - IN_FLIGHT);
  }
  for (uint32_t k = MICROBATCHES - IN_FLIGHT; k < MICROBATCHES; k++)
    add_backward(m, k);
}

static void unmake(made *m)
{
  plan_release(&m->plan);
  arena_release(&m->memory);
}

static const plan_repeat *found(made *m)
{
  plan_find_repeats(&m->plan, 2);
  assert_repeats(&m->plan, m->rank);
  assert_int_equal(m->plan.ranks[1].repeat.turns, 0);
  return &m->rank->repeat;
}

enum { TURNS = MICROBATCHES - IN_FLIGHT, FIRST = IN_FLIGHT * OPS_OF_FORWARD };

static void test_closed_form(void **state)
{
  (void)state;
  made m;
  make(&m);
  const plan_repeat *r = found(&m);
  assert_int_equal(r->first, FIRST);
  assert_int_equal(r->ops, OPS_OF_TURN);
  assert_int_equal(r->turns, TURNS);
  assert_int_equal(r->marks, 2);
  assert_int_equal(r->messages, 1);
  assert_int_equal(r->buffers, 1);
  assert_int_equal(r->events, 1);
  /* Residents stay; what the warm-up has left is renamed too. */
  assert_int_equal(earlier_buffer(r, 0), 0);
  assert_int_equal(earlier_buffer(r, 1), 1);
  assert_int_equal(earlier_buffer(r, m.saved[0]), NO_ID);
  assert_int_equal(earlier_buffer(r, m.saved[1]), m.saved[0]);
  assert_int_equal(earlier_event(r, m.events[3]), m.events[2]);
  unmake(&m);
}

/* An op of turn 7 of the ten differs: turns 0 to 6 are left. `change` gets the first op of turn 7. */
static void check_changed(void (*change)(made *m, uint32_t turn))
{
  made m;
  enum { CHANGED = 7 };
  make(&m);
  change(&m, FIRST + CHANGED * OPS_OF_TURN);
  const plan_repeat *r = found(&m);
  assert_int_equal(r->first, FIRST);
  assert_int_equal(r->turns, CHANGED);
  unmake(&m);
}

enum { ALLOC_OF_TURN = 1, KERNEL_OF_TURN, RECORD_OF_TURN, SEND_OF_TURN, BACKWARD_OF_TURN };

static void change_site(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + KERNEL_OF_TURN].site++;
}

static void change_kind(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + SEND_OF_TURN].kind = OP_RECV;
}

static void change_stream(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + RECORD_OF_TURN].stream = STREAM_COMM;
}

static void change_resident(made *m, uint32_t turn)
{
  m->rank->operands.items[m->rank->ops.items[turn + KERNEL_OF_TURN].operands] = 1;
}

static void change_sent(made *m, uint32_t turn)
{
  m->rank->operands.items[m->rank->ops.items[turn + SEND_OF_TURN].operands] = 1;
}

/* Both are of the turn before the last one in flight: sizes agree, places do not. */
static void change_saved(made *m, uint32_t turn)
{
  const plan_op *backward = &m->rank->ops.items[turn + BACKWARD_OF_TURN + 2];
  assert_int_equal(backward->kind, OP_KERNEL);
  m->rank->operands.items[backward->operands]++;
}

static void change_call(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + KERNEL_OF_TURN].arg ^= 1;
}

static void change_bytes(made *m, uint32_t turn)
{
  m->rank->buffers.items[m->rank->ops.items[turn + ALLOC_OF_TURN].arg].bytes += 512;
}

static void change_mark_of_buffer(made *m, uint32_t turn)
{
  m->rank->buffers.items[m->rank->ops.items[turn + ALLOC_OF_TURN].arg].mark--;
}

static void change_message_bytes(made *m, uint32_t turn)
{
  m->plan.messages.items[m->rank->ops.items[turn + SEND_OF_TURN].arg].bytes++;
}

static void change_message(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + SEND_OF_TURN].arg++;
}

static void change_wait(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + BACKWARD_OF_TURN + 1].arg++;
}

static void change_free(made *m, uint32_t turn)
{
  m->rank->ops.items[turn + OPS_OF_TURN - 1].operands = 1u << STREAM_COMM;
}

static void change_microbatch(made *m, uint32_t turn)
{
  m->rank->marks.items[m->rank->ops.items[turn].arg].microbatch++;
}

static void test_changes(void **state)
{
  (void)state;
  static void (*const changes[])(made *, uint32_t) = {
    change_site,          change_kind, change_stream,  change_resident,   change_sent,
    change_saved,         change_call, change_bytes,   change_wait,       change_mark_of_buffer,
    change_message_bytes, change_free, change_message, change_microbatch,
  };
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
    check_changed(changes[i]);
}

/* Every turn reads another resident: nothing repeats. */
static void test_nothing(void **state)
{
  (void)state;
  made m;
  make(&m);
  uint32_t kernel = 0;
  for (uint32_t i = 0; i < m.rank->ops.count; i++)
    if (m.rank->ops.items[i].kind == OP_KERNEL)
      m.rank->operands.items[m.rank->ops.items[i].operands + 1] = kernel++ / 2 % 2;
  assert_int_equal(found(&m)->turns, 0);
  unmake(&m);
}

/* Found again, the answer is that of the plan as it is now. */
static void test_again(void **state)
{
  (void)state;
  made m;
  make(&m);
  assert_int_equal(found(&m)->turns, TURNS);
  change_site(&m, FIRST + 7 * OPS_OF_TURN);
  assert_int_equal(found(&m)->turns, 7);
  unmake(&m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_closed_form), cmocka_unit_test(test_changes),
    cmocka_unit_test(test_nothing),     cmocka_unit_test(test_again),
    cmocka_unit_test(test_compiled),    cmocka_unit_test(test_virtual_stages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
