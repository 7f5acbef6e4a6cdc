/*
 * Asserts what holds for a plan that a program has made. The parser checks the same for a plan that
 * it reads. Indexes are in range, buffers and events are numbered as the text numbers them, and the
 * rules of validate.h hold.
 */
#include <assert.h>
#include <stdio.h>

#include "sim/plan/validate.h"
#include "sim/plan/words.h"

/* ---- tables -------------------------------------------------------------------------------- */

static void assert_call(const plan *p, const plan_call *c)
{
  uint32_t kinds = c->is_collective ? (uint32_t)COLLECTIVE_KINDS : (uint32_t)KERNEL_KINDS;
  assert(c->kind < kinds && c->dtype < DTYPES && c->group < COMM_GROUPS && c->bytes >= 0);
  assert(c->views <= p->views.count && c->view_count <= p->views.count - c->views);
  assert((c->views == 0) == (c->view_count == 0) &&
         "a call sees all its operands whole, or each as its view says");
  for (int i = 0; i < PLAN_DIMS; i++)
    assert(c->dims[i] >= 0);
}

static void assert_shared_tables(const plan *p)
{
  for (uint32_t i = 0; i < p->calls.count; i++)
    assert_call(p, &p->calls.items[i]);
  for (uint32_t i = 0; i < p->views.count; i++)
    assert(p->views.items[i].dtype < DTYPES && p->views.items[i].rank <= PLAN_VIEW_DIMS);
  for (uint32_t i = 0; i < p->tensors.count; i++) {
    const plan_tensor *t = &p->tensors.items[i];
    assert(t->name != NULL && t->site < p->sites.count && t->dtype < DTYPES &&
           t->rank <= PLAN_TENSOR_DIMS);
  }
  for (uint32_t i = 0; i < p->sites.count; i++)
    assert(p->sites.items[i].module != NULL && p->sites.items[i].layer >= -1);
  for (uint32_t i = 0; i < p->messages.count; i++) {
    const plan_message *m = &p->messages.items[i];
    assert(m->from_rank < p->rank_count && m->to_rank < p->rank_count &&
           m->from_rank != m->to_rank);
    assert(m->bytes >= 0);
  }
}

static void assert_marks(const rank_plan *r)
{
  assert(r->marks.count >= 1 && "marks[0] is before the iteration");
  for (uint32_t i = 0; i < r->marks.count; i++) {
    const plan_mark *m = &r->marks.items[i];
    assert(m->kind < MARK_KINDS);
    assert(mark_is_of_microbatch((mark_kind)m->kind) || (m->microbatch == 0 && m->chunk == 0));
  }
}

void plan_assert_tables(const plan *p)
{
  assert(p->views.count >= 1 && p->views.items[0].whole && p->sites.count >= 1);
  assert(p->global_ranks >= p->rank_count && p->global_ranks % p->rank_count == 0);
  assert_shared_tables(p);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    assert(p->ranks[r].residents <= p->ranks[r].buffers.count);
    assert_marks(&p->ranks[r]);
  }
}

/* ---- ops ----------------------------------------------------------------------------------- */

/* A rank, and the counters of the text form. */
typedef struct rank_check {
  const plan *plan;
  const rank_plan *rank;
  uint32_t number;
  uint32_t next_buffer, next_event;
} rank_check;

static void assert_buffer(const rank_check *c, uint32_t id)
{
  const plan_buffer *b = &c->rank->buffers.items[id];
  assert(b->bytes >= 0 && b->tensor < c->plan->tensors.count && b->mark < c->rank->marks.count);
  assert(b->purpose < BUFFER_CLASSES && b->stream < STREAMS);
}

static void assert_call_op(const rank_check *c, const plan_op *o)
{
  assert(o->arg < c->plan->calls.count);
  const plan_call *call = &c->plan->calls.items[o->arg];
  assert(call->is_collective == (o->kind == OP_COLLECTIVE));
  assert(call->views == 0 || call->view_count == (uint32_t)o->reads + o->writes);
}

static void assert_message_op(const rank_check *c, const plan_op *o)
{
  assert(o->arg < c->plan->messages.count);
  const plan_message *m = &c->plan->messages.items[o->arg];
  assert((o->kind == OP_SEND ? m->from_rank : m->to_rank) == c->number);
}

/* What the op names exists, and what it makes has the next number. */
static void assert_arg(rank_check *c, const plan_op *o)
{
  switch ((op_kind)o->kind) {
  case OP_MARK: assert(o->arg < c->rank->marks.count); return;
  case OP_ALLOC:
  case OP_HOST_ALLOC:
    assert(o->arg == c->next_buffer && o->arg < c->rank->buffers.count);
    c->next_buffer++;
    assert_buffer(c, o->arg);
    return;
  case OP_FREE: assert(o->arg < c->next_buffer && o->operands >> STREAM_HOST == 0); return;
  case OP_HOST_FREE: assert(o->arg < c->next_buffer); return;
  case OP_KERNEL:
  case OP_COLLECTIVE: assert_call_op(c, o); return;
  case OP_D2H:
  case OP_H2D: assert(o->arg == 0 || o->arg + 1 < c->plan->views.count); return;
  case OP_RECORD:
    assert(o->arg == c->next_event && o->arg < c->rank->events);
    c->next_event++;
    return;
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: assert(o->arg < c->rank->events); return;
  case OP_HOST_WORK: assert(o->arg > 0); return;
  case OP_SEND:
  case OP_RECV: assert_message_op(c, o); return;
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: assert(o->arg == 0); return;
  case OP_KINDS: break;
  }
  assert(0 && "no such kind of op");
}

static void assert_indexes(rank_check *c, const plan_op *o)
{
  uint32_t operands = (uint32_t)o->reads + o->writes;
  assert(o->stream < STREAMS && o->site < c->plan->sites.count);
  assert(operands == 0 || o->operands <= c->rank->operands.count);
  assert(operands == 0 || operands <= c->rank->operands.count - o->operands);
  assert_arg(c, o);
}

/* `at` has the op's number, from 1, as its line. */
static bool check_op(plan_validator *v, const plan_op *o, source_pos at)
{
  source_pos operands[2 * UINT8_MAX];
  op_source where = { .op = at, .arg = at, .operands = operands };
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++)
    operands[i] = at;
  if ((o->kind == OP_SEND || o->kind == OP_RECV) &&
      !validate_message(v, o->arg, &v->plan->messages.items[o->arg], o->kind == OP_RECV, at))
    return false;
  return validate_op(v, o, &where);
}

static bool check_rank(plan_validator *v, const plan *p, uint32_t rank)
{
  rank_check c = { .plan = p, .rank = &p->ranks[rank], .number = rank };
  validate_rank_begin(v, rank);
  for (; c.next_buffer < c.rank->residents; c.next_buffer++) {
    assert_buffer(&c, c.next_buffer);
    if (!validate_resident(v, c.next_buffer, (source_pos){ "residents", 0, 0 })) return false;
  }
  for (uint32_t i = 0; i < c.rank->ops.count; i++) {
    assert_indexes(&c, &c.rank->ops.items[i]);
    if (!check_op(v, &c.rank->ops.items[i], (source_pos){ "op", (int)i + 1, (int)rank }))
      return false;
  }
  assert(c.next_buffer == c.rank->buffers.count && "a buffer that nothing allocates");
  assert(c.next_event == c.rank->events && "an event that nothing records");
  return validate_rank_end(v);
}

void plan_assert_valid(const plan *p)
{
  diag d = { .quiet = true };
  plan_validator v = { .plan = p, .d = &d };
  plan_assert_tables(p);
  bool valid = true;
  for (uint32_t r = 0; valid && r < p->rank_count; r++)
    valid = check_rank(&v, p, r);
  valid = valid && validate_plan_end(&v);
  validator_release(&v);
  if (!valid) fprintf(stderr, "%s\n", d.message);
  assert(valid && "a plan that its own text form would refuse");
}
