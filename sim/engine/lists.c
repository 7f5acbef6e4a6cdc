#include "sim/engine/lists.h"

#include <assert.h>

#include "sim/plan/repeats.h"

/* The last turn but one. It and what comes after are in the lists from the beginning. */
static uint32_t listed_turn(const plan_repeat *r)
{
  return repeat_end(r) - 2 * r->ops;
}

/* Adds ops [begin, end) in front of what the lists have. */
static void put_in_lists(stream_lists *l, uint32_t *recorded_by, const rank_plan *p, uint32_t begin,
                         uint32_t end)
{
  for (uint32_t i = end; i-- > begin;) {
    const plan_op *o = &p->ops.items[i];
    l->following[i] = NO_OP;
    if (!op_runs_on_stream((op_kind)o->kind)) continue;
    assert(o->stream < DEVICE_STREAMS && l->first[o->stream] > i);
    l->following[i] = l->first[o->stream];
    l->first[o->stream] = i;
    if (o->kind == OP_RECORD) recorded_by[o->arg] = i;
  }
}

/* The lists begin at op `base`, of the last turn but one: now they begin at its place in the first turn. What
 * it records, the same op of each turn does. */
static void repeat_lists(stream_lists *l, uint32_t *recorded_by, const rank_plan *p, uint32_t base)
{
  const plan_repeat *r = &p->repeat;
  for (uint32_t i = base; i < base + r->ops; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind != OP_RECORD) continue;
    uint32_t op = i, event = o->arg;
    for (; op >= r->first + r->ops; op -= r->ops, event -= r->events)
      recorded_by[event - r->events] = op - r->ops;
  }
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (l->first[s] < base + r->ops) l->first[s] -= base - r->first;
}

stream_lists lists_of(const rank_plan *p, arena *a)
{
  uint32_t *recorded_by = ARENA_UNSET_ARRAY(a, uint32_t, p->events);
  stream_lists l = { .following = ARENA_UNSET_ARRAY(a, uint32_t, p->ops.count) };
  for (uint32_t i = 0; i < p->events; i++)
    recorded_by[i] = NO_OP;
  for (int s = 0; s < DEVICE_STREAMS; s++)
    l.first[s] = NO_OP;
  if (p->repeat.turns > 0) {
    uint32_t base = listed_turn(&p->repeat);
    put_in_lists(&l, recorded_by, p, base, p->ops.count);
    repeat_lists(&l, recorded_by, p, base);
    put_in_lists(&l, recorded_by, p, 0, p->repeat.first);
  } else {
    put_in_lists(&l, recorded_by, p, 0, p->ops.count);
  }
  l.recorded_by = recorded_by;
  return l;
}

/* A turn that begins `by` ops before another one. */
static void list_earlier(uint32_t *restrict to, const uint32_t *restrict from, uint32_t count,
                         uint32_t by)
{
  for (uint32_t i = 0; i < count; i++)
    to[i] = from[i] - by;
}

uint32_t list_turns(uint32_t *following, const rank_plan *p, uint32_t from, uint32_t to)
{
  const plan_repeat *r = &p->repeat;
  uint32_t base = listed_turn(r), turn = from;
  assert(r->turns > 0 && from == repeat_turn_begin(r, from));
  for (; turn <= to && turn < base; turn += r->ops)
    list_earlier(&following[turn], &following[base], r->ops, base - turn);
  return turn < base ? turn : p->ops.count;
}
