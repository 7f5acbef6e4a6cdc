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

/* Events are numbered in the order in which ops record them. */
static uint32_t events_before(const rank_plan *r, uint32_t at)
{
  for (uint32_t i = at; i < r->ops.count; i++)
    if (r->ops.items[i].kind == OP_RECORD) return r->ops.items[i].arg;
  return r->events;
}

static uint32_t operands_of(const plan_op *o)
{
  return op_works((op_kind)o->kind) ? (uint32_t)o->reads + o->writes : 0;
}

/* The ids that ops after the cut have in place of the plan's. */
typedef struct renaming {
  const uint32_t *earlier; /* a turn earlier (plan_repeat) */
  uint32_t turns;          /* left out */
  uint32_t first, growth;  /* those from `first` on are of turns, whose ids grow by that much */
  uint32_t before, after;  /* number of ids before the cut, and where the plan goes on after it */
  uint32_t *known;         /* by id: one more than its name here, 0: not yet asked for */
} renaming;

/* NO_ID: unknown. */
static uint32_t earlier_name(const renaming *n, uint32_t id)
{
  uint32_t left = n->turns, name = id;
  if (name >= n->first && n->growth > 0) {
    uint32_t turn = (name - n->first) / n->growth, back = turn < left ? turn : left;
    name -= back * n->growth;
    left -= back;
  }
  for (; left > 0 && n->earlier[name] != name; left--) {
    if (n->earlier[name] == NO_ID) return name == id && id < n->before ? id : NO_ID;
    name = n->earlier[name];
  }
  return name < n->before ? name : NO_ID;
}

static uint32_t name_of(renaming *n, uint32_t id)
{
  if (id >= n->after) return id - (n->after - n->before);
  if (n->known[id] == 0) n->known[id] = earlier_name(n, id) + 1;
  return n->known[id] - 1;
}

static void renaming_init(renaming *n, arena *a)
{
  assert(n->after - n->before == n->turns * n->growth);
  n->known = ARENA_ARRAY(a, uint32_t, n->after);
}

typedef struct rank_names {
  renaming buffers, events;
} rank_names;

/* False: an id has no name. */
static bool rename_op(rank_names *n, const rank_plan *from, rank_plan *to, plan_op *o)
{
  bool is_event = o->kind == OP_RECORD || op_waits_for_event((op_kind)o->kind);
  bool is_buffer = o->kind == OP_ALLOC || o->kind == OP_FREE || o->kind == OP_HOST_ALLOC ||
                   o->kind == OP_HOST_FREE;
  if (is_event) o->arg = name_of(&n->events, o->arg);
  if (is_buffer) o->arg = name_of(&n->buffers, o->arg);
  bool named = !(is_event || is_buffer) || o->arg != NO_ID;
  uint32_t first = o->operands, count = operands_of(o);
  if (count > 0) o->operands = to->operands.count;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t name = name_of(&n->buffers, from->operands.items[first + i]);
    to->operands.items[to->operands.count++] = name;
    named = named && name != NO_ID;
  }
  return named;
}

/* Puts items [0, before) and [after, count) of `from` into `to`, which is empty. */
#define COPY_PARTS(to, from, before, after)                                                        \
  copy_parts(ARRAY_EXTEND(to, (before) + (from)->count - (after)), (from)->items, before, after,   \
             (from)->count, sizeof *(from)->items)

static void copy_parts(void *to, const void *from, uint32_t before, uint32_t after, uint32_t count,
                       size_t item_bytes)
{
  if (before > 0) memcpy(to, from, before * item_bytes);
  if (count > after)
    memcpy((char *)to + before * item_bytes, (const char *)from + after * item_bytes,
           (count - after) * item_bytes);
}

/* Those of the ops before the cut, and room for those after it. */
static void copy_operands(rank_plan *to, const rank_plan *from, uint32_t cut)
{
  uint32_t count = 0, rest = 0;
  for (uint32_t i = 0; i < cut; i++) {
    const plan_op *o = &to->ops.items[i];
    if (operands_of(o) > 0 && o->operands + operands_of(o) > count)
      count = o->operands + operands_of(o);
  }
  for (uint32_t i = cut; i < to->ops.count; i++)
    rest += operands_of(&to->ops.items[i]);
  ARRAY_RESERVE(&to->operands, count + rest);
  if (count > 0)
    memcpy(ARRAY_EXTEND(&to->operands, count), from->operands.items,
           count * sizeof *to->operands.items);
}

/* The names after the cut, where the plan goes on with its op `resume`. */
static rank_names new_names(const rank_plan *from, const rank_cut *c, uint32_t turns,
                            uint32_t resume, arena *a)
{
  const plan_repeat *repeat = c->repeat;
  rank_names n = { .buffers = { .earlier = repeat->earlier_buffers.items,
                                .turns = turns,
                                .first = buffers_before(from, repeat->first),
                                .growth = repeat->buffers,
                                .before = c->buffers,
                                .after = buffers_before(from, resume) },
                   .events = { .earlier = repeat->earlier_events.items,
                               .turns = turns,
                               .first = events_before(from, repeat->first),
                               .growth = repeat->events,
                               .before = c->events,
                               .after = events_before(from, resume) } };
  renaming_init(&n.buffers, a);
  renaming_init(&n.events, a);
  return n;
}

static bool shorten_rank(rank_plan *to, const rank_plan *from, rank_cut *c, uint32_t turns,
                         arena *a)
{
  uint32_t resume = c->at + turns * c->repeat->ops, earlier = turn_before(c);
  c->buffers = buffers_before(from, c->at);
  c->events = events_before(from, c->at);
  c->moves =
      (moves){ ARENA_ARRAY(a, uint32_t, earlier), ARENA_ARRAY(a, uint32_t, earlier), earlier };
  rank_names n = new_names(from, c, turns, resume, a);
  *to = (rank_plan){ .marks = from->marks, .residents = from->residents };
  to->events = from->events - (n.events.after - n.events.before);
  COPY_PARTS(&to->buffers, &from->buffers, n.buffers.before, n.buffers.after);
  COPY_PARTS(&to->ops, &from->ops, c->at, resume);
  copy_operands(to, from, c->at);
  for (uint32_t i = c->at; i < to->ops.count; i++)
    if (!rename_op(&n, from, to, &to->ops.items[i])) return false;
  return true;
}

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

bool plan_shorten(shortened *s, const plan *p, uint32_t turns, arena *a)
{
  *s = (shortened){ .whole = p };
  assert(turns >= 1 && plan_repeats(p));
  cutting x = { p, turns, ARENA_ARRAY(a, rank_cut, p->rank_count),
                arena_alloc(a, p->messages.count, sizeof *x.sides) };
  if (!find_cuts(&x)) return false;
  s->left_out = turns_to_leave_out(p, x.cuts);
  if (s->left_out == 0) return false;
  s->plan = *p;
  s->cuts = x.cuts;
  s->plan.ranks = ARENA_ARRAY(a, rank_plan, p->rank_count);
  for (uint32_t r = 0; r < p->rank_count; r++)
    if (!shorten_rank(&s->plan.ranks[r], &p->ranks[r], &x.cuts[r], s->left_out, a)) return false;
  return true;
}

void shortened_release(shortened *s)
{
  for (uint32_t r = 0; r < s->plan.rank_count; r++) {
    ARRAY_FREE(&s->plan.ranks[r].ops);
    ARRAY_FREE(&s->plan.ranks[r].operands);
    ARRAY_FREE(&s->plan.ranks[r].buffers);
  }
}
