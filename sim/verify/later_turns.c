/*
 * Turns after a rank's gap. All ranks leave out equally many turns, so that the messages match; those that
 * begin their turns early have more of them after it:
 *
 *     warm-up | turn | turn | gap | turn | turn | ..... | turn | drain
 *                                 '-------- later -------'
 *
 * The walk need not look at a turn in which each op knows at least what it knew a turn before, moved on by
 * the function F of cut.h: the turn asks the same questions again. Each last use is then at most F of what it
 * was. So the walk goes on after such turns, with F applied to its last uses as often as there are turns.
 * Numbers of ops of two streams are never compared, so F is one function for each stream.
 */
#include <assert.h>

#include "sim/verify/buffer_walk.h"

#define NO_MOVE UINT32_MAX

typedef struct later_turns {
  const rank_order *order;
  const op_gap *gap;
  uint32_t ops;         /* of a turn */
  uint32_t turn_before; /* the cut */
  uint32_t *moved;      /* by op before that: the least F, NO_MOVE: none of its stream is used */
} later_turns;

/* For each stream the least growing function that moves each use far enough: to an op of that stream. */
static uint32_t *least_moves(const moves *m, const plan_op *ops, arena *a)
{
  uint32_t *moved = ARENA_UNSET_ARRAY(a, uint32_t, m->count), most[STREAMS] = { 0 };
  for (uint32_t i = 0; i < m->count; i++) {
    uint32_t *to = &most[actor_stream(&ops[i])];
    if (m->used[i] > *to) *to = m->used[i];
    moved[i] = *to - 1; /* NO_MOVE: none yet */
  }
  return moved;
}

/* F of an op, `turns` times. */
static uint32_t move_on(const later_turns *l, uint32_t op, uint32_t turns)
{
  uint32_t left = turns;
  for (; left > 0 && op < l->turn_before; left--) {
    if (l->moved[op] == NO_MOVE) return NO_MOVE;
    op = l->moved[op];
  }
  bool leaps = left > 0 && op < l->gap->begin;
  return op + left * l->ops + (leaps ? l->gap->end - l->gap->begin : 0);
}

/* ---- what ops know -------------------------------------------------------------------------- */

/* Whether an op of the stream knows what it knew a turn before, moved on. The stream's own ops are done in
 * order, and it forgets nothing: it still knows which streams have begun. */
static bool knows_again(const later_turns *l, uint32_t stream, const progress *before,
                        const progress *now)
{
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    uint32_t x = before->done_to[s], y = now->done_to[s];
    assert(y >= x);
    if (s == stream || x <= STREAM_BEGUN) continue;
    uint32_t moved = move_on(l, x - done_with(0), 1);
    if (moved != NO_MOVE && y < done_with(moved)) return false;
  }
  return true;
}

/* The lesson that holds at op `op`, from lesson `at` on. */
static uint32_t lesson_at(const lesson_list *list, uint32_t at, uint32_t op)
{
  while (at + 1 < list->count && list->items[at + 1].from <= op)
    at++;
  return at;
}

/* How far into its turn, which begins with op `begin`, the lesson after this one is: at most the turn's
 * length. */
static uint32_t until_next(const later_turns *l, const lesson_list *list, uint32_t at,
                           uint32_t begin)
{
  if (at + 1 == list->count || list->items[at + 1].from - begin > l->ops) return l->ops;
  return list->items[at + 1].from - begin;
}

static bool stream_knows_again(const later_turns *l, uint32_t stream, uint32_t before, uint32_t now)
{
  const lesson_list *list = &l->order->lessons[stream];
  uint32_t x = 0, y = 0;
  for (uint32_t i = 0; i < l->ops;) {
    x = lesson_at(list, x, before + i);
    y = lesson_at(list, y, now + i);
    if (!knows_again(l, stream, &list->items[x].knows.own, &list->items[y].knows.own)) return false;
    uint32_t next = until_next(l, list, x, before), other = until_next(l, list, y, now);
    i = next < other ? next : other;
  }
  return true;
}

/* The host thread learns only from events that it waits for, and an event says what its stream knew when it
 * recorded it. So if the streams know enough in this turn, and in those before it, the host thread does, too:
 * it knew enough at the cut, and so did the events recorded before that (order_repeats). */
static bool turn_knows_again(const later_turns *l, uint32_t before, uint32_t now)
{
  for (uint32_t left = l->order->streams; left != 0; left &= left - 1)
    if (!stream_knows_again(l, (uint32_t)__builtin_ctz(left), before, now)) return false;
  assert(stream_knows_again(l, STREAM_HOST, before, now));
  return true;
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* Of a use, numbered from 1. */
static void move_use_on(const later_turns *l, uint32_t *use, uint32_t turns)
{
  uint32_t moved = *use == 0 ? NO_MOVE : move_on(l, *use - 1, turns);
  if (moved != NO_MOVE) *use = moved + 1;
}

static void move_uses_on(const later_turns *l, former_uses *u, uint32_t turns)
{
  for (uint32_t left = u->users; left != 0; left &= left - 1)
    move_use_on(l, &u->on[__builtin_ctz(left)].op, turns);
}

static void move_walk_on(rank_walk *w, const later_turns *l, uint32_t turns)
{
  for (uint32_t i = 0; i < w->parts.count; i++) {
    part *p = &w->parts.items[i];
    for (uint32_t left = p->users; left != 0; left &= left - 1)
      move_use_on(l, &p->last[__builtin_ctz(left)], turns);
    move_use_on(l, &p->write, turns);
  }
  for (uint32_t i = 0; i < w->cells.count; i++)
    move_uses_on(l, &w->cells.items[i].inherited, turns);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    move_uses_on(l, &w->returned[s], turns);
}

op_gap walk_past_later_turns(rank_walk *w, const rank_cut *c, arena *a)
{
  const plan_repeat *repeat = c->repeat;
  later_turns l = {
    .order = w->order, .gap = w->gap, .ops = repeat->ops, .turn_before = turn_before(c)
  };
  l.moved = least_moves(&c->moves, w->plan->ops.items, a);
  uint32_t turns = 0, before = l.turn_before, now = w->gap->end;
  while (now + l.ops <= repeat_end(repeat) && turn_knows_again(&l, before, now)) {
    turns++;
    before = now;
    now += l.ops;
  }
  if (turns > 0) move_walk_on(w, &l, turns);
  return gap_of_turns(w->plan, c->at, w->gap->buffers.turns + turns);
}
