#include "sim/plan/repeats.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "sim/base/parallel.h"

uint32_t buffers_before(const rank_plan *r, uint32_t at)
{
  for (uint32_t i = at; i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) return o->arg;
  }
  return r->buffers.count;
}

/* ---- how far the marks repeat ------------------------------------------------------------------- */

/* Marks are in the order of their ops, from 1 on. Mark i is mark i - period of a later micro-batch. */
static bool mark_repeats(const mark_array *m, uint32_t i, uint32_t period, uint32_t microbatches)
{
  const plan_mark *now = &m->items[i], *before = now - period;
  return now->kind == before->kind && now->chunk == before->chunk &&
         now->microbatch - before->microbatch == microbatches;
}

/* Number of marks around mark i + period that repeat with this period. */
static uint32_t count_repeating(const mark_array *m, uint32_t i, uint32_t period)
{
  uint32_t first = i + period, last = i + period;
  uint32_t microbatches = m->items[first].microbatch - m->items[i].microbatch;
  while (first > period + 1 && mark_repeats(m, first - 1, period, microbatches))
    first--;
  while (last + 1 < m->count && mark_repeats(m, last + 1, period, microbatches))
    last++;
  return last - first + 1;
}

/* The number of marks after which those in the middle of the rank repeat longest; 0: they do not. Once half
 * of all marks repeat, no other period is looked for. */
static uint32_t period_of_marks(const mark_array *m, uint32_t middle)
{
  uint32_t best = 0, most = 0;
  for (uint32_t p = 1; middle + p < m->count && most < (m->count - 1) / 2; p++) {
    const plan_mark *now = &m->items[middle + p], *before = &m->items[middle];
    if (now->kind != before->kind || now->chunk != before->chunk ||
        now->microbatch <= before->microbatch)
      continue;
    uint32_t count = count_repeating(m, middle, p);
    if (count <= most) continue;
    most = count;
    best = p;
  }
  return best;
}

/* NO_ID: none. */
static uint32_t op_of_mark(const op_array *ops, uint32_t mark)
{
  for (uint32_t low = 0, high = ops->count; low < high;) {
    uint32_t middle = low + (high - low) / 2, i = middle;
    while (i < high && ops->items[i].kind != OP_MARK)
      i++;
    if (i < high && ops->items[i].arg == mark) return i;
    if (i < high && ops->items[i].arg < mark)
      low = i + 1;
    else
      high = middle;
  }
  return NO_ID;
}

/* ---- how far the ops repeat --------------------------------------------------------------------- */

/* Renaming of ids: `earlier` of a later id, and back. */
typedef struct renaming {
  uint32_t *earlier, *later; /* NO_ID: not yet met */
} renaming;

typedef struct comparison {
  const plan *plan;
  const rank_plan *rank;
  uint32_t ops; /* of a turn */
  renaming buffers, events;
  /* By how much ids grow, of the op in the middle that is the first of its kind. */
  uint32_t taken, recorded, messages, marks, microbatches;
  bool knows_taken, knows_recorded, knows_messages, knows_marks;
} comparison;

/* One to one: each id has one earlier and one later id. False: one of them has another. */
static bool meet(renaming *r, uint32_t now, uint32_t before)
{
  if (r->earlier[now] != NO_ID || r->later[before] != NO_ID) return false;
  r->earlier[now] = before;
  r->later[before] = now;
  return true;
}

static inline bool rename_event(comparison *c, uint32_t now, uint32_t before)
{
  return c->events.earlier[now] == before || meet(&c->events, now, before);
}

/* The first growth is that of all. */
static inline bool grows(uint32_t *by, bool *knows, uint32_t now, uint32_t before)
{
  if (!*knows) *by = now - before;
  *knows = true;
  return now - before == *by;
}

static bool is_same_mark(const rank_plan *r, uint32_t now, uint32_t before)
{
  const plan_mark *a = &r->marks.items[now], *b = &r->marks.items[before];
  return a->kind == b->kind && a->chunk == b->chunk;
}

static bool is_same_buffer(const rank_plan *r, uint32_t now, uint32_t before)
{
  const plan_buffer *a = &r->buffers.items[now], *b = &r->buffers.items[before];
  return a->bytes == b->bytes && a->tensor == b->tensor && a->purpose == b->purpose &&
         a->stream == b->stream && a->filled == b->filled && a->host_key == b->host_key;
}

/* What two buffers are is compared when they meet. */
static inline bool rename_buffer(comparison *c, uint32_t now, uint32_t before)
{
  return c->buffers.earlier[now] == before ||
         (meet(&c->buffers, now, before) && is_same_buffer(c->rank, now, before));
}

/* The comparison began with a mark. */
static inline bool takes_same(comparison *c, uint32_t now, uint32_t before)
{
  const plan_buffer *buffers = c->rank->buffers.items;
  assert(c->knows_marks);
  return now != before && grows(&c->taken, &c->knows_taken, now, before) &&
         buffers[now].mark - buffers[before].mark == c->marks && rename_buffer(c, now, before);
}

static bool same_message(comparison *c, uint32_t now, uint32_t before)
{
  const plan_message *a = &c->plan->messages.items[now], *b = &c->plan->messages.items[before];
  return a->from_rank == b->from_rank && a->to_rank == b->to_rank && a->bytes == b->bytes &&
         grows(&c->messages, &c->knows_messages, now, before);
}

static bool same_phase(comparison *c, uint32_t now, uint32_t before)
{
  const plan_mark *marks = c->rank->marks.items;
  if (!c->knows_marks) c->microbatches = marks[now].microbatch - marks[before].microbatch;
  return is_same_mark(c->rank, now, before) &&
         marks[now].microbatch - marks[before].microbatch == c->microbatches &&
         grows(&c->marks, &c->knows_marks, now, before);
}

static inline bool same_arg(comparison *c, const plan_op *now, const plan_op *before)
{
  switch ((op_kind)now->kind) {
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: return now->arg == before->arg;
  case OP_ALLOC:
  case OP_HOST_ALLOC: return takes_same(c, now->arg, before->arg);
  case OP_FREE: return now->operands == before->operands && rename_buffer(c, now->arg, before->arg);
  case OP_HOST_FREE: return rename_buffer(c, now->arg, before->arg);
  case OP_RECORD:
    return grows(&c->recorded, &c->knows_recorded, now->arg, before->arg) &&
           now->arg != before->arg && rename_event(c, now->arg, before->arg);
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ: return rename_event(c, now->arg, before->arg);
  case OP_SEND:
  case OP_RECV: return same_message(c, now->arg, before->arg);
  case OP_MARK: return same_phase(c, now->arg, before->arg);
  case OP_KINDS: break;
  }
  assert(0 && "an unknown kind of op");
  return false;
}

/* Op i is the op a turn before. */
static inline bool op_repeats(comparison *c, uint32_t i)
{
  const plan_op *now = &c->rank->ops.items[i], *before = now - c->ops;
  if (memcmp(now, before, offsetof(plan_op, arg)) != 0 || now->site != before->site ||
      !same_arg(c, now, before))
    return false;
  const uint32_t *a = &c->rank->operands.items[now->operands];
  const uint32_t *b = &c->rank->operands.items[before->operands];
  for (uint32_t k = 0; k < (uint32_t)now->reads + now->writes; k++)
    if (!rename_buffer(c, a[k], b[k])) return false;
  return true;
}

static id_array ids_new(uint32_t count)
{
  id_array ids = { 0 };
  if (count > 0) memset(ARRAY_EXTEND(&ids, count), 0xff, count * sizeof *ids.items);
  assert(count == 0 || ids.items[0] == NO_ID);
  return ids;
}

/* The longest run of ops that repeat, around op `middle`, cut to whole turns. */
static void find_turns(plan_repeat *found, const plan *p, const rank_plan *r, uint32_t middle,
                       uint32_t ops)
{
  id_array later_buffers = ids_new(r->buffers.count), later_events = ids_new(r->events);
  found->earlier_buffers = ids_new(r->buffers.count);
  found->earlier_events = ids_new(r->events);
  comparison c = { .plan = p,
                   .rank = r,
                   .ops = ops,
                   .buffers = { found->earlier_buffers.items, later_buffers.items },
                   .events = { found->earlier_events.items, later_events.items } };
  uint32_t end = middle, first = middle;
  assert(ops > 0 && middle >= ops && middle < r->ops.count);
  while (end < r->ops.count && op_repeats(&c, end))
    end++;
  while (end > middle && first > ops && op_repeats(&c, first - 1))
    first--;
  found->first = first - ops;
  found->ops = ops;
  found->turns = (end - found->first) / ops;
  found->marks = c.marks;
  found->messages = c.messages;
  found->buffers = c.taken;
  found->events = c.recorded;
  ARRAY_FREE(&later_buffers);
  ARRAY_FREE(&later_events);
}

static void forget(plan_repeat *r)
{
  ARRAY_FREE(&r->earlier_buffers);
  ARRAY_FREE(&r->earlier_events);
  *r = (plan_repeat){ 0 };
}

void plan_find_repeats_of(plan *p, uint32_t rank)
{
  assert(rank < p->rank_count);
  rank_plan *r = &p->ranks[rank];
  uint32_t middle = (r->marks.count + 1) / 2, period = period_of_marks(&r->marks, middle);
  forget(&r->repeat);
  if (period == 0) return;
  uint32_t before = op_of_mark(&r->ops, middle), now = op_of_mark(&r->ops, middle + period);
  if (before == NO_ID || now == NO_ID || before >= now) return;
  find_turns(&r->repeat, p, r, now, now - before);
  if (r->repeat.turns < FEWEST_TURNS) forget(&r->repeat);
  assert(r->repeat.turns == 0 || repeat_end(&r->repeat) <= r->ops.count);
}

static void find_in_rank(void *context, uint32_t rank)
{
  plan_find_repeats_of(context, rank);
}

void plan_find_repeats(plan *p, uint32_t threads)
{
  parallel_for(p->rank_count, threads, find_in_rank, p);
}
