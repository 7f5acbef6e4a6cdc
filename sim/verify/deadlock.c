/*
 * Why ops never end. Each stream and each host thread that is stuck waits for one that is stuck too,
 * or for a collective that a rank never issues. Following that from any of them ends at such a
 * collective or goes round a cycle, which is the cause; ops outside the cycle that
 * wait for it are only delayed.
 */
#include <assert.h>

#include "sim/verify/findings.h"

/* A stream of a rank, or its host thread: rank * STREAMS + stream. */
typedef uint32_t actor;

#define NO_ACTOR UINT32_MAX

typedef struct search {
  verification *v;
  uint32_t (*message_op)[2]; /* by message: the ops that send and receive it, NO_OP: none */
  uint8_t *seen;             /* by actor: 0 not yet, 1 on the path, 2 explained */
  bool *reported;            /* by actor */
} search;

static actor actor_of(uint32_t rank, uint32_t stream)
{
  return rank * STREAMS + stream;
}

/* The op at which an actor is stuck, NO_OP: it is not. */
static uint32_t stuck_op(const search *s, actor a)
{
  assert(a / STREAMS < s->v->plan->rank_count);
  return s->v->order.ranks[a / STREAMS].stuck[a % STREAMS];
}

static bool is_issued(const search *s, uint32_t rank, uint32_t op)
{
  return op < stuck_op(s, actor_of(rank, STREAM_HOST)); /* NO_OP is the largest number */
}

static const plan_op *op_of(const search *s, uint32_t rank, uint32_t op)
{
  assert(op < s->v->plan->ranks[rank].ops.count);
  return &s->v->plan->ranks[rank].ops.items[op];
}

static bool is_message(const search *s, uint32_t rank, uint32_t op)
{
  return op_is_message((op_kind)op_of(s, rank, op)->kind);
}

/* The next message of the same exchange, NO_OP: none. */
static uint32_t next_message(const search *s, uint32_t rank, uint32_t op)
{
  uint8_t stream = op_of(s, rank, op)->stream;
  for (uint32_t i = op + 1; i < s->v->plan->ranks[rank].ops.count; i++) {
    const plan_op *o = op_of(s, rank, i);
    if (o->stream == stream && op_runs_on_stream((op_kind)o->kind))
      return is_message(s, rank, i) ? i : NO_OP;
  }
  return NO_OP;
}

/* The op of an exchange that the host thread has not issued, NO_OP: none. */
static uint32_t unissued_message(const search *s, uint32_t rank, uint32_t op)
{
  while (op != NO_OP && is_issued(s, rank, op))
    op = next_message(s, rank, op);
  return op;
}

/* Whether a stream has reached the op: the others know that it is there. */
static bool is_reached(const search *s, uint32_t rank, uint32_t op)
{
  uint32_t at = stuck_op(s, actor_of(rank, op_of(s, rank, op)->stream));
  if (!is_message(s, rank, op)) return op < at || (op == at && is_issued(s, rank, op));
  for (uint32_t i = at; i != NO_OP && is_message(s, rank, i); i = next_message(s, rank, i))
    if (i == op) return unissued_message(s, rank, at) == NO_OP;
  return op < at;
}

/* The stream of another rank that an op at an exchange or a collective waits for. */
static actor late_actor(const search *s, uint32_t rank, uint32_t op)
{
  return is_reached(s, rank, op) ? NO_ACTOR : actor_of(rank, op_of(s, rank, op)->stream);
}

/* `missing`: the rank that never issues the other side, else unchanged. */
static actor awaited_side(const search *s, uint32_t rank, uint32_t op, uint32_t *missing)
{
  actor found = NO_ACTOR;
  for (; op != NO_OP && found == NO_ACTOR; op = next_message(s, rank, op)) {
    const plan_op *o = op_of(s, rank, op);
    const plan_message *m = &s->v->plan->messages.items[o->arg];
    uint32_t other = o->kind == OP_SEND ? m->to_rank : m->from_rank;
    uint32_t side = s->message_op[o->arg][o->kind == OP_SEND];
    if (side != NO_OP)
      found = late_actor(s, other, side);
    else if (rank_is_present(s->v->plan, other) && *missing == NO_OP)
      *missing = other;
  }
  return found;
}

static actor awaited_member(const search *s, uint32_t rank, uint32_t op, uint32_t *missing)
{
  const communicators *c = &s->v->order.communicators;
  uint32_t number = c->of_call[op_of(s, rank, op)->arg];
  assert(number != NO_COMMUNICATOR && "another collective waits for nobody");
  const roster *mine = &c->rosters[rank][number];
  uint32_t turn = roster_turn(mine, op);
  actor found = NO_ACTOR;
  for (uint32_t i = 0; i < mine->peer_count && found == NO_ACTOR; i++) {
    const roster *theirs = &c->rosters[mine->peers[i]][number];
    if (turn < theirs->count)
      found = late_actor(s, mine->peers[i], theirs->ops[turn]);
    else if (*missing == NO_OP)
      *missing = mine->peers[i];
  }
  return found;
}

/* Whom a stuck actor waits for; NO_ACTOR: for the rank `missing`, which never issues what it must. */
static actor awaited(const search *s, actor a, uint32_t *missing)
{
  uint32_t rank = a / STREAMS, op = stuck_op(s, a);
  const plan_op *o = op_of(s, rank, op);
  if (op_is_host_wait((op_kind)o->kind) || (o->kind == OP_WAIT && is_issued(s, rank, op)))
    return actor_of(rank, op_of(s, rank, record_op(&s->v->order.ranks[rank], o->arg))->stream);
  if (!is_issued(s, rank, op)) return actor_of(rank, STREAM_HOST);
  if (o->kind == OP_COLLECTIVE) return awaited_member(s, rank, op, missing);
  assert(is_message(s, rank, op));
  if (unissued_message(s, rank, op) != NO_OP) return actor_of(rank, STREAM_HOST);
  return awaited_side(s, rank, op, missing);
}

static void add_place(search *s, uint32_t rank, uint32_t op)
{
  *ARRAY_PUSH(&s->v->places) = (finding_place){ rank, op };
}

static void report(search *s, finding_kind kind, uint32_t rank, uint32_t op, uint32_t first_place)
{
  add_finding(s->v, (finding){ .kind = (uint8_t)kind,
                               .rank = rank,
                               .first = NO_OP,
                               .second = op,
                               .buffer = NO_BUFFER,
                               .reused = NO_BUFFER,
                               .places = first_place,
                               .place_count = s->v->places.count - first_place });
}

/* Reports a cycle from its lowest actor on. */
static void report_cycle(search *s, actor in_cycle)
{
  uint32_t missing = NO_OP, first = s->v->places.count;
  actor lowest = in_cycle;
  for (actor a = awaited(s, in_cycle, &missing); a != in_cycle; a = awaited(s, a, &missing))
    if (a < lowest) lowest = a;
  if (s->reported[lowest]) return;
  actor a = lowest;
  do {
    s->reported[a] = true;
    add_place(s, a / STREAMS, stuck_op(s, a));
    a = awaited(s, a, &missing);
  } while (a != lowest);
  report(s, FINDING_DEADLOCK, lowest / STREAMS, stuck_op(s, lowest), first);
}

static void report_missing(search *s, actor a, uint32_t missing)
{
  assert(missing != NO_OP);
  if (s->reported[a]) return;
  s->reported[a] = true;
  add_place(s, missing, NO_OP);
  bool message = is_message(s, a / STREAMS, stuck_op(s, a));
  report(s, message ? FINDING_DEADLOCK : FINDING_MISSING_COLLECTIVE, a / STREAMS, stuck_op(s, a),
         s->v->places.count - 1);
}

/* Follows what an actor waits for until it is known or comes round. */
static void explain(search *s, actor from, actor *path)
{
  uint32_t length = 0, missing = NO_OP;
  actor a = from;
  while (a != NO_ACTOR && s->seen[a] == 0) {
    s->seen[a] = 1;
    path[length++] = a;
    missing = NO_OP;
    a = awaited(s, a, &missing);
  }
  if (a == NO_ACTOR)
    report_missing(s, path[length - 1], missing);
  else if (s->seen[a] == 1)
    report_cycle(s, a);
  while (length > 0)
    s->seen[path[--length]] = 2;
}

static void find_messages(search *s, arena *a)
{
  const plan *p = s->v->plan;
  s->message_op = arena_alloc(a, p->messages.count, sizeof *s->message_op);
  for (uint32_t m = 0; m < p->messages.count; m++)
    s->message_op[m][0] = s->message_op[m][1] = NO_OP;
  for (uint32_t r = 0; r < p->rank_count; r++)
    for (uint32_t i = 0; i < p->ranks[r].ops.count; i++)
      if (is_message(s, r, i)) {
        const plan_op *o = &p->ranks[r].ops.items[i];
        s->message_op[o->arg][o->kind == OP_RECV] = i;
      }
}

void find_deadlocks(verification *v, arena *a)
{
  uint32_t actors = v->plan->rank_count * STREAMS;
  search s = { .v = v };
  v->stuck = is_stuck(&v->order, v->plan->rank_count);
  if (!v->stuck) return;
  find_messages(&s, a);
  s.seen = ARENA_ARRAY(a, uint8_t, actors);
  s.reported = ARENA_ARRAY(a, bool, actors);
  actor *path = ARENA_ARRAY(a, actor, actors);
  for (actor i = 0; i < actors; i++)
    if (stuck_op(&s, i) != NO_OP) explain(&s, i, path);
}
