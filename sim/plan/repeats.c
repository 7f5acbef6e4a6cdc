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

uint32_t events_before(const rank_plan *r, uint32_t at)
{
  for (uint32_t i = at; i < r->ops.count; i++)
    if (r->ops.items[i].kind == OP_RECORD) return r->ops.items[i].arg;
  return r->events;
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

/* See ids_meet. */
typedef struct renaming {
  uint32_t *earlier, *later;
} renaming;

typedef struct comparison {
  const plan *plan;
  const rank_plan *rank;
  uint32_t ops; /* of a turn */
  renaming buffers, events;
  uint32_t taken, marks, microbatches; /* by how much ids grow */
  uint32_t recorded, messages;         /* ... of the first such op that is met */
  bool knows_recorded, knows_messages;
} comparison;

static inline bool rename_event(comparison *c, uint32_t now, uint32_t before)
{
  return ids_meet(c->events.earlier, c->events.later, now, before);
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

/* Compares two buffers when they meet. */
static inline bool rename_buffer(comparison *c, uint32_t now, uint32_t before)
{
  const plan_buffer *buffers = c->rank->buffers.items;
  return c->buffers.earlier[now] == before ||
         (ids_meet(c->buffers.earlier, c->buffers.later, now, before) &&
          buffer_repeats(&buffers[now], &buffers[before]));
}

static inline bool takes_same(comparison *c, uint32_t now, uint32_t before)
{
  const plan_buffer *buffers = c->rank->buffers.items;
  return now != before && now - before == c->taken &&
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
  return is_same_mark(c->rank, now, before) &&
         marks[now].microbatch - marks[before].microbatch == c->microbatches &&
         now - before == c->marks;
}

static bool rename_operands(comparison *c, const uint32_t *now, const uint32_t *before,
                            uint32_t count)
{
  for (uint32_t i = 0; i < count; i++)
    if (!rename_buffer(c, now[i], before[i])) return false;
  return true;
}

/* Nearly all operands have met where their buffers were taken. */
static inline bool same_operands(comparison *c, const plan_op *now, const plan_op *before)
{
  const uint32_t *earlier = c->buffers.earlier;
  const uint32_t *a = &c->rank->operands.items[now->operands];
  const uint32_t *b = &c->rank->operands.items[before->operands];
  uint32_t count = (uint32_t)now->reads + now->writes;
  while (count > 0 && earlier[*a] == *b) {
    a++;
    b++;
    count--;
  }
  return count == 0 || rename_operands(c, a, b, count);
}

/* The two ops are of one kind, on one stream, with as many operands. */
static inline bool is_renamed(comparison *c, const plan_op *now, const plan_op *before)
{
  switch ((op_kind)now->kind) {
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ: return now->arg == before->arg && same_operands(c, now, before);
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
  case OP_RECV: return same_message(c, now->arg, before->arg) && same_operands(c, now, before);
  case OP_MARK: return same_phase(c, now->arg, before->arg);
  case OP_KINDS: break;
  }
  assert(0 && "an unknown kind of op");
  return false;
}

/* How many of up to `most` ops are the op a turn before, from `now` on or, with `step` -1, backwards. */
static uint32_t count_repeating_ops(comparison *c, const plan_op *now, int step, uint32_t most)
{
  const plan_op *before = now - c->ops;
  uint32_t count = 0;
  while (count < most && memcmp(now, before, offsetof(plan_op, arg)) == 0 &&
         now->site == before->site && is_renamed(c, now, before)) {
    now += step;
    before += step;
    count++;
  }
  return count;
}

static void put_none(uint32_t *to, uint32_t count)
{
  if (count > 0) memset(to, 0xff, count * sizeof *to);
}

id_array ids_new(uint32_t count)
{
  id_array ids = { 0 };
  put_none(ARRAY_EXTEND(&ids, count), count);
  assert(count == 0 || ids.items[0] == NO_ID);
  return ids;
}

/* The op of a mark, and that of the same phase a turn earlier. */
typedef struct turn_begin {
  uint32_t now, before;
} turn_begin;

/* Ids grow by their differences between the two ops. */
static comparison comparison_new(const plan *p, const rank_plan *r, const turn_begin *of)
{
  const plan_op *now = &r->ops.items[of->now], *before = &r->ops.items[of->before];
  const plan_mark *marks = r->marks.items;
  assert(of->before < of->now && of->now < r->ops.count);
  assert(now->kind == OP_MARK && before->kind == OP_MARK);
  return (comparison){ .plan = p,
                       .rank = r,
                       .ops = of->now - of->before,
                       .taken = buffers_before(r, of->now) - buffers_before(r, of->before),
                       .marks = now->arg - before->arg,
                       .microbatches = marks[now->arg].microbatch - marks[before->arg].microbatch };
}

static void keep_first_of(id_array *ids, uint32_t count)
{
  assert(count <= ids->count);
  ids->count = count;
  ARRAY_TRIM(ids);
}

/* All others have grown evenly. */
static void keep_ids_of_first_turn(const rank_plan *r, plan_repeat *found)
{
  keep_first_of(&found->earlier_buffers, buffers_before(r, found->first) + found->buffers);
  keep_first_of(&found->earlier_events, events_before(r, found->first) + found->events);
}

/* The longest run of ops that repeat, around op `middle.now`, cut to whole turns. */
static void find_turns(plan_repeat *found, const plan *p, const rank_plan *r, turn_begin middle)
{
  comparison c = comparison_new(p, r, &middle);
  id_array later_buffers = ids_new(r->buffers.count), later_events = ids_new(r->events);
  found->earlier_buffers = ids_new(r->buffers.count);
  found->earlier_events = ids_new(r->events);
  c.buffers = (renaming){ found->earlier_buffers.items, later_buffers.items };
  c.events = (renaming){ found->earlier_events.items, later_events.items };
  uint32_t counts[2] = { 0 }; /* from the middle on, and before it */
  for (uint32_t back = 0; back < 2 && (back == 0 || counts[0] > 0); back++)
    counts[back] = count_repeating_ops(&c, &r->ops.items[middle.now - back], back ? -1 : 1,
                                       back ? middle.before : r->ops.count - middle.now);
  found->first = middle.before - counts[1];
  found->ops = c.ops;
  found->turns = (counts[1] + c.ops + counts[0]) / c.ops;
  found->marks = c.marks;
  found->messages = c.messages;
  found->buffers = c.taken;
  found->events = c.recorded;
  ARRAY_FREE(&later_buffers);
  ARRAY_FREE(&later_events);
}

void plan_forget_repeat(rank_plan *r)
{
  ARRAY_FREE(&r->repeat.earlier_buffers);
  ARRAY_FREE(&r->repeat.earlier_events);
  r->repeat = (plan_repeat){ 0 };
}

static void keep_long_repeat(rank_plan *r)
{
  if (r->repeat.turns < FEWEST_TURNS) {
    plan_forget_repeat(r);
    return;
  }
  assert(repeat_end(&r->repeat) <= r->ops.count);
  keep_ids_of_first_turn(r, &r->repeat);
}

void plan_find_repeats_of(plan *p, uint32_t rank)
{
  assert(rank < p->rank_count);
  rank_plan *r = &p->ranks[rank];
  uint32_t middle = (r->marks.count + 1) / 2, period = period_of_marks(&r->marks, middle);
  plan_forget_repeat(r);
  if (period == 0) return;
  turn_begin begin = { op_of_mark(&r->ops, middle + period), op_of_mark(&r->ops, middle) };
  if (begin.before == NO_ID || begin.now == NO_ID || begin.before >= begin.now) return;
  find_turns(&r->repeat, p, r, begin);
  keep_long_repeat(r);
}

static void find_in_rank(void *context, uint32_t rank)
{
  plan_find_repeats_of(context, rank);
}

void plan_find_repeats(plan *p, uint32_t threads)
{
  parallel_for(p->rank_count, threads, find_in_rank, p);
}

/* ---- around turns that are known to repeat -------------------------------------------------------- */

/* The first mark at op `at` or after it: each turn has one. */
static uint32_t mark_after(const rank_plan *r, uint32_t at)
{
  while (r->ops.items[at].kind != OP_MARK)
    at++;
  assert(at < r->ops.count);
  return r->ops.items[at].arg;
}

/* How many buffers the rank has had when the known turns end. */
static uint32_t end_of_ids(const id_array *earlier, uint32_t growth, uint32_t turns)
{
  return earlier->count + (turns - 1) * growth;
}

/* Cuts the turns off from the first on in which a buffer has another purpose than a turn before. */
static void cut_changed(const rank_plan *r, plan_repeat *known, const id_array *changed)
{
  uint32_t taken = known->buffers, first = known->earlier_buffers.count;
  uint32_t end = end_of_ids(&known->earlier_buffers, taken, known->turns), at = end;
  const plan_buffer *buffers = r->buffers.items;
  for (uint32_t i = 0; i < changed->count; i++)
    for (uint32_t k = 0; k < 2; k++) {
      uint32_t b = changed->items[i] + k * taken;
      if (b >= first && b < at && buffers[b].purpose != buffers[b - taken].purpose) at = b;
    }
  if (at < end) known->turns = 1 + (at - first) / taken;
}

static void put_rising(uint32_t *to, uint32_t count, uint32_t from)
{
  for (uint32_t i = 0; i < count; i++)
    to[i] = from + i;
}

/* Of `count` ids, in the known turns; those that come after them have not been met. Extends `earlier` and
 * returns the reverse. */
static id_array extend_and_reverse(id_array *earlier, uint32_t growth, uint32_t turns,
                                   uint32_t count)
{
  uint32_t first = earlier->count, grown = end_of_ids(earlier, growth, turns) - first;
  id_array later = { 0 };
  (void)ARRAY_EXTEND(&later, count);
  put_none(later.items, first);
  for (uint32_t i = 0; i < first; i++)
    if (earlier->items[i] != NO_ID) later.items[earlier->items[i]] = i;
  put_rising(ARRAY_EXTEND(earlier, count - first), grown, first - growth);
  put_rising(later.items + first - growth, grown, first);
  put_none(earlier->items + first + grown, count - first - grown);
  put_none(later.items + first - growth + grown, count - (first - growth + grown));
  return later;
}

/* Whether they are the turns in the middle of the rank. */
static bool is_in_middle(const rank_plan *r, const plan_repeat *known)
{
  uint32_t middle = (r->marks.count + 1) / 2;
  uint32_t first = mark_after(r, known->first), end = first + known->turns * known->marks;
  return first <= middle && middle + known->marks < end;
}

void plan_extend_repeats_of(plan *p, uint32_t rank, const id_array *changed)
{
  rank_plan *r = &p->ranks[rank];
  plan_repeat *known = &r->repeat;
  assert(known->turns > 1 && repeat_end(known) <= r->ops.count);
  if (!is_in_middle(r, known)) {
    plan_find_repeats_of(p, rank);
    return;
  }
  const plan_mark *mark = &r->marks.items[mark_after(r, known->first + known->ops)];
  uint32_t microbatches = mark->microbatch - (mark - known->marks)->microbatch;
  cut_changed(r, known, changed);
  id_array later_buffers =
      extend_and_reverse(&known->earlier_buffers, known->buffers, known->turns, r->buffers.count);
  id_array later_events =
      extend_and_reverse(&known->earlier_events, known->events, known->turns, r->events);
  comparison c = { .plan = p,
                   .rank = r,
                   .ops = known->ops,
                   .buffers = { known->earlier_buffers.items, later_buffers.items },
                   .events = { known->earlier_events.items, later_events.items },
                   .taken = known->buffers,
                   .marks = known->marks,
                   .microbatches = microbatches,
                   .recorded = known->events,
                   .messages = known->messages,
                   .knows_recorded = known->events > 0,
                   .knows_messages = known->messages > 0 };
  uint32_t first = known->first + known->ops, end = repeat_end(known);
  end += count_repeating_ops(&c, &r->ops.items[end], 1, r->ops.count - end);
  known->first -= count_repeating_ops(&c, &r->ops.items[first - 1], -1, known->first);
  known->turns = (end - known->first) / known->ops;
  known->messages = c.messages;
  known->events = c.recorded;
  keep_long_repeat(r);
  ARRAY_FREE(&later_buffers);
  ARRAY_FREE(&later_events);
}
