#include "sim/verify/cut.h"

#include <assert.h>
#include <string.h>

#include "sim/plan/repeats.h"

/* ---- cuts ----------------------------------------------------------------------------------- */

typedef struct cutting {
  const plan *plan;
  uint32_t turns; /* that each rank has before its cut, at least */
  rank_cut *cuts;
  uint32_t (*sides)[2]; /* by message: what sends and receives it before the cuts, NO_OP: none */
} cutting;

static bool is_message(const plan_op *o)
{
  return op_is_message((op_kind)o->kind);
}

/* Whether the stream's op before op `at` is a message. */
static bool follows_message(const rank_plan *r, uint32_t at)
{
  uint8_t stream = r->ops.items[at].stream;
  for (uint32_t i = at; i-- > 0;) {
    const plan_op *o = &r->ops.items[i];
    if (o->stream == stream && op_runs_on_stream((op_kind)o->kind)) return is_message(o);
  }
  return false;
}

/* Where the exchanges end that have begun before op `at`: there, if there are none. */
static uint32_t end_of_exchanges(const rank_plan *r, uint32_t at)
{
  uint32_t seen = 0, end = at, last = at + r->repeat.ops;
  for (uint32_t i = at; i < last && i < r->ops.count; i++) {
    const plan_op *o = &r->ops.items[i];
    if (!op_runs_on_stream((op_kind)o->kind) || (seen >> o->stream & 1)) continue;
    if (is_message(o) && follows_message(r, i))
      end = i + 1;
    else
      seen |= UINT32_C(1) << o->stream;
  }
  return end;
}

/* Moves a rank's cut on to op `to`, or to the end of its exchanges. False: its turns end before. */
static bool cut_at(cutting *x, uint32_t rank, uint32_t to)
{
  const rank_plan *r = &x->plan->ranks[rank];
  rank_cut *c = &x->cuts[rank];
  to = end_of_exchanges(r, to);
  if (to > repeat_end(&r->repeat)) return false;
  for (; c->at < to; c->at++) {
    const plan_op *o = &r->ops.items[c->at];
    if (is_message(o)) x->sides[o->arg][o->kind == OP_RECV] = c->at;
  }
  return true;
}

/* The rank's op that sends or receives the message, from its cut on. */
static uint32_t find_side(const cutting *x, uint32_t rank, uint32_t message)
{
  const op_array *ops = &x->plan->ranks[rank].ops;
  uint32_t i = x->cuts[rank].at;
  while (i < ops->count && !(is_message(&ops->items[i]) && ops->items[i].arg == message))
    i++;
  return i;
}

/* Moves the cut of a rank on past the other side of a message. */
static bool take_other_side(cutting *x, uint32_t message, bool *moved)
{
  const plan_message *m = &x->plan->messages.items[message];
  const uint32_t *sides = x->sides[message];
  if ((sides[0] == NO_OP) == (sides[1] == NO_OP)) return true;
  uint32_t rank = sides[0] == NO_OP ? m->from_rank : m->to_rank;
  *moved = true;
  return cut_at(x, rank, find_side(x, rank, message) + 1);
}

static bool begin_cuts(cutting *x)
{
  const plan *p = x->plan;
  memset(x->sides, 0xff, p->messages.count * sizeof *x->sides);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    const plan_repeat *repeat = &p->ranks[r].repeat;
    x->cuts[r].repeat = repeat;
    if (repeat->turns <= x->turns || !cut_at(x, r, repeat->first + x->turns * repeat->ops))
      return false;
  }
  return true;
}

/* Whether the same holds a turn before the cuts, and both sides of the turn's messages go on to the same
 * ones. */
static bool are_closed(const cutting *x)
{
  const plan *p = x->plan;
  for (uint32_t r = 0; r < p->rank_count; r++)
    if (end_of_exchanges(&p->ranks[r], turn_before(&x->cuts[r])) != turn_before(&x->cuts[r]))
      return false;
  for (uint32_t i = 0; i < p->messages.count; i++) {
    if (x->sides[i][0] == NO_OP) continue;
    const rank_cut *from = &x->cuts[p->messages.items[i].from_rank],
                   *to = &x->cuts[p->messages.items[i].to_rank];
    bool sent = x->sides[i][0] < turn_before(from), received = x->sides[i][1] < turn_before(to);
    if (sent != received || (!sent && from->repeat->messages != to->repeat->messages)) return false;
  }
  return true;
}

static bool find_cuts(cutting *x)
{
  bool moved = true;
  if (!begin_cuts(x)) return false;
  while (moved) {
    moved = false;
    for (uint32_t m = 0; m < x->plan->messages.count; m++)
      if (!take_other_side(x, m, &moved)) return false;
  }
  return are_closed(x);
}

/* ---- the shortened plan --------------------------------------------------------------------- */

/* Turns that all ranks have after their cuts; 0 if that is too little to gain anything. */
static uint32_t turns_to_leave_out(const plan *p, const rank_cut *cuts)
{
  uint32_t turns = UINT32_MAX;
  uint64_t all = 0, left_out = 0;
  for (uint32_t r = 0; r < p->rank_count; r++) {
    uint32_t left = (repeat_end(cuts[r].repeat) - cuts[r].at) / cuts[r].repeat->ops;
    turns = left < turns ? left : turns;
  }
  for (uint32_t r = 0; r < p->rank_count; r++) {
    all += p->ranks[r].ops.count;
    left_out += (uint64_t)turns * cuts[r].repeat->ops;
  }
  return left_out >= all / 4 ? turns : 0;
}

static void leave_out(shortened *s, uint32_t rank, arena *a)
{
  rank_cut *c = &s->cuts[rank];
  op_gap *gap = &s->gaps[rank];
  uint32_t earlier = turn_before(c);
  *gap = gap_of_turns(&s->plan->ranks[rank], c->at, s->left_out);
  c->buffers = gap->buffers.before;
  c->events = gap->events.before;
  c->moves =
      (moves){ ARENA_ARRAY(a, uint32_t, earlier), ARENA_ARRAY(a, uint32_t, earlier), earlier };
}

bool plan_shorten(shortened *s, const plan *p, uint32_t turns, arena *a)
{
  *s = (shortened){ .plan = p };
  assert(turns >= 1 && plan_repeats(p));
  cutting x = { p, turns, ARENA_ARRAY(a, rank_cut, p->rank_count),
                arena_alloc(a, p->messages.count, sizeof *x.sides) };
  if (!find_cuts(&x)) return false;
  s->left_out = turns_to_leave_out(p, x.cuts);
  if (s->left_out == 0) return false;
  s->cuts = x.cuts;
  s->gaps = ARENA_ARRAY(a, op_gap, p->rank_count);
  for (uint32_t r = 0; r < p->rank_count; r++)
    leave_out(s, r, a);
  return true;
}
