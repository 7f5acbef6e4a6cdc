/* Whether the order that is known at the cuts is at least that of a turn before. */
#include <string.h>

#include "sim/plan/repeats.h"
#include "sim/verify/cut.h"

bool moves_are_safe(const moves *m)
{
  uint32_t known = UINT32_MAX;
  for (uint32_t i = m->count; i-- > 0;) {
    if (m->known[i] != 0 && m->known[i] < known) known = m->known[i];
    if (m->used[i] > known) return false;
  }
  return true;
}

typedef struct order_turn {
  const shortened *of;
  const rank_order *order;
  uint32_t rank;
  const progress *others[2]; /* the last that were compared */
} order_turn;

/* `without`: a stream that is left out, STREAM_HOST: none. */
static bool progress_moves(moves *m, const progress *before, const progress *after,
                           uint32_t without)
{
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    uint32_t x = before->done_to[s], y = after->done_to[s];
    if (s == without) continue;
    if (x > STREAM_BEGUN ? y <= STREAM_BEGUN || !move_known(m, x - done_with(0), y - done_with(0))
                         : y < x)
      return false;
  }
  return true;
}

/* What is known of the own rank is separate. */
static bool others_move(order_turn *t, const progress *before, const progress *after)
{
  if (before == NULL || (before == t->others[0] && after == t->others[1])) return true;
  if (after == NULL) return false;
  t->others[0] = before;
  t->others[1] = after;
  for (uint32_t r = 0; r < t->of->plan->rank_count; r++)
    if (r != t->rank && !progress_moves(&t->of->cuts[r].moves, &before[r], &after[r], STREAM_HOST))
      return false;
  return true;
}

/* What was known and, a turn later, is. */
static bool knowledge_moves(order_turn *t, const knowledge *x, const knowledge *y, uint32_t without)
{
  return progress_moves(&t->of->cuts[t->rank].moves, &x->own, &y->own, without) &&
         others_move(t, x->others, y->others);
}

/* What a stream itself has done by its ops `before` and `after`. */
static bool work_moves(order_turn *t, uint32_t before, uint32_t after)
{
  if (before == NO_OP) return true;
  return after != NO_OP && move_known(&t->of->cuts[t->rank].moves, before, after);
}

/* By stream, and of the host thread; NO_OP: none. */
typedef struct last_ops {
  uint32_t any[STREAMS], work[STREAMS]; /* work: that counts as done */
} last_ops;

/* From those before op `begin` to those before op `end`. */
static void find_last_ops(last_ops *last, const rank_plan *r, uint32_t streams, uint32_t begin,
                          uint32_t end)
{
  uint32_t of_any = streams | 1u << STREAM_HOST, of_work = streams;
  for (uint32_t i = end; i-- > begin && (of_any | of_work) != 0;) {
    const plan_op *o = &r->ops.items[i];
    uint32_t s = actor_stream(o), bit = UINT32_C(1) << s;
    if (of_any & bit) last->any[s] = i;
    of_any &= ~bit;
    if (!(of_work & bit) || !op_works((op_kind)o->kind)) continue;
    last->work[s] = i;
    of_work &= ~bit;
  }
}

/* A stream that has no ops in a turn knows what it has always known. Its own ops are done in order. */
static bool streams_repeat(order_turn *t)
{
  const rank_plan *r = &t->of->plan->ranks[t->rank];
  const rank_cut *c = &t->of->cuts[t->rank];
  last_ops before, after;
  memset(&before, 0xff, sizeof before);
  find_last_ops(&before, r, t->order->streams, 0, turn_before(c));
  after = before;
  find_last_ops(&after, r, t->order->streams, turn_before(c), c->at);
  for (uint32_t s = 0; s < STREAMS; s++) {
    uint32_t x = before.any[s], y = after.any[s];
    if (y == NO_OP) continue;
    if (x == NO_OP || !knowledge_moves(t, known_at(t->order, s, x), known_at(t->order, s, y), s) ||
        !work_moves(t, before.work[s], after.work[s]))
      return false;
  }
  return true;
}

/* Marks the events recorded before the cut that ops after it wait for: those left out, and the rest. Once a
 * turn waits for none, no later turn does. */
static void mark_awaited(const order_turn *t, bool *awaited)
{
  const rank_cut *c = &t->of->cuts[t->rank];
  const rank_plan *whole = &t->of->plan->ranks[t->rank];
  uint32_t begin = c->at, found = 1;
  for (uint32_t turn = 0; turn < t->of->left_out && found > 0; turn++, begin += c->repeat->ops) {
    found = 0;
    for (uint32_t i = begin; i < begin + c->repeat->ops; i++) {
      const plan_op *o = &whole->ops.items[i];
      if (!op_waits_for_event((op_kind)o->kind) || o->arg >= c->events) continue;
      awaited[o->arg] = true;
      found++;
    }
  }
  const event_wait *waits = t->order->waits;
  for (uint32_t i = t->order->wait_count; i-- > 0 && waits[i].op >= c->at;)
    if (waits[i].event < c->events) awaited[waits[i].event] = true;
}

static bool event_moves(order_turn *t, uint32_t before, uint32_t after)
{
  uint32_t x = t->order->record_of[before], y = t->order->record_of[after];
  if (x == NO_RECORD || y == NO_RECORD) return false;
  return knowledge_moves(t, &t->order->records[x].knows, &t->order->records[y].knows, STREAM_HOST);
}

/* An event says what its stream knew, and had done. Those that take an awaited event's place have to be
 * compared too. */
static bool events_repeat(order_turn *t, arena *a)
{
  const rank_cut *c = &t->of->cuts[t->rank];
  bool *awaited = ARENA_ARRAY(a, bool, c->events);
  mark_awaited(t, awaited);
  for (uint32_t e = 0; e < c->events; e++) {
    uint32_t before = earlier_event(c->repeat, e);
    if (before == NO_ID) before = e;
    if (before > e) return false;
    awaited[e] |= awaited[before];
    if (awaited[e] && !event_moves(t, before, e)) return false;
  }
  return true;
}

/* A communicator pairs collectives by their number, which leaving some out would change. */
static bool meets_other_ranks(const order_turn *t, const communicators *m)
{
  const rank_cut *c = &t->of->cuts[t->rank];
  for (uint32_t i = turn_before(c); m->count > 0 && i < c->at; i++) {
    const plan_op *o = &t->of->plan->ranks[t->rank].ops.items[i];
    if (o->kind == OP_COLLECTIVE && m->of_call[o->arg] != NO_COMMUNICATOR) return true;
  }
  return false;
}

bool order_repeats(const shortened *s, const plan_order *o, arena *a)
{
  for (uint32_t r = 0; r < s->plan->rank_count; r++) {
    order_turn t = { .of = s, .order = &o->ranks[r], .rank = r };
    if (t.order->unknown || meets_other_ranks(&t, &o->communicators) || !streams_repeat(&t) ||
        !events_repeat(&t, a))
      return false;
  }
  return true;
}
