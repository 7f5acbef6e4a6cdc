#include "sim/verify/verify.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sim/base/parallel.h"
#include "sim/plan/repeats.h"
#include "sim/verify/findings.h"
#include "sim/verify/parts.h"

static const struct {
  const char *name, *meaning;
  finding_severity severity;
} rows[FINDING_KINDS] = {
#define X(kind, name, severity, meaning) [FINDING_##kind] = { name, meaning, SEVERITY_##severity },
  VERIFY_FINDINGS(X)
#undef X
};

const char *finding_name(finding_kind kind)
{
  assert((unsigned)kind < FINDING_KINDS);
  return rows[kind].name;
}

const char *finding_meaning(finding_kind kind)
{
  assert((unsigned)kind < FINDING_KINDS);
  return rows[kind].meaning;
}

finding_severity finding_severity_of(finding_kind kind)
{
  assert((unsigned)kind < FINDING_KINDS);
  return rows[kind].severity;
}

const char *severity_name(finding_severity severity)
{
  static const char *const names[SEVERITIES] = { "error", "warning", "advice" };
  assert((unsigned)severity < SEVERITIES);
  return names[severity];
}

/* ---- events, messages and progress: what waits for what, and whether it can ----------------- */

static void report(verification *v, finding_kind kind, uint32_t rank, uint32_t first,
                   uint32_t second)
{
  add_finding(v, (finding){ .kind = (uint8_t)kind,
                            .rank = rank,
                            .first = first,
                            .second = second,
                            .buffer = NO_BUFFER,
                            .reused = NO_BUFFER });
}

static void look_at_wait(verification *v, uint32_t rank, const event_wait *wait, bool *awaited)
{
  const rank_order *o = &v->order.ranks[rank];
  uint32_t record = record_op(o, wait->event);
  awaited[wait->event] = true;
  if (record == NO_OP || record > wait->op)
    report(v, FINDING_WAIT_BEFORE_RECORD, rank, record, wait->op);
  else if (!v->errors_alone && is_implied(&v->plan->ranks[rank], o, wait))
    report(v, FINDING_IMPLIED_WAIT, rank, record, wait->op);
}

static void look_at_waits(verification *v, uint32_t rank, arena *a)
{
  const rank_plan *p = &v->plan->ranks[rank];
  const rank_order *o = &v->order.ranks[rank];
  bool *awaited = ARENA_ARRAY(a, bool, p->events);
  for (uint32_t i = 0; i < o->wait_count; i++)
    look_at_wait(v, rank, &o->waits[i], awaited);
  for (uint32_t e = 0; e < p->events && !v->errors_alone; e++)
    if (!awaited[e] && o->record_of[e] != NO_RECORD)
      report(v, FINDING_UNUSED_EVENT, rank, NO_OP, record_op(o, e));
}

/* Of a rank's messages. */
static const plan_op *message_of(const verification *v, uint32_t rank, uint32_t number)
{
  return &v->plan->ranks[rank].ops.items[v->order.ranks[rank].messages[number]];
}

static bool sends_to(const plan *p, const plan_op *o, uint32_t from, uint32_t to)
{
  return o->kind == OP_SEND && p->messages.items[o->arg].from_rank == from &&
         p->messages.items[o->arg].to_rank == to;
}

/* The number of the next message that `from` sends to `to`, from its number `at` on; its message count if
 * there is none. */
static uint32_t next_send(const verification *v, uint32_t from, uint32_t to, uint32_t at)
{
  while (at < v->order.ranks[from].message_count &&
         !sends_to(v->plan, message_of(v, from, at), from, to))
    at++;
  return at;
}

/* The communication library pairs the sends of one rank to another with the receives there, in the
 * order in which both sides issue them. Reports the first mismatched pair. */
static void match_messages(verification *v, uint32_t rank, arena *a)
{
  const plan *p = v->plan;
  uint32_t *sent = ARENA_ARRAY(a, uint32_t, p->rank_count);
  for (uint32_t i = 0; i < v->order.ranks[rank].message_count; i++) {
    const plan_op *o = message_of(v, rank, i);
    if (o->kind != OP_RECV) continue;
    uint32_t from = p->messages.items[o->arg].from_rank;
    if (!rank_is_present(p, from)) continue;
    uint32_t send = next_send(v, from, rank, sent[from]);
    sent[from] = send + 1;
    if (send < v->order.ranks[from].message_count && message_of(v, from, send)->arg == o->arg)
      continue;
    report(v, FINDING_MISMATCHED_MESSAGES, rank, NO_OP, v->order.ranks[rank].messages[i]);
    return;
  }
}

/* The same of the collectives of a communicator. */
static void match_collectives(verification *v, uint32_t rank)
{
  const communicators *c = &v->order.communicators;
  finding_place other;
  uint32_t op;
  if (c->count == 0 || !find_mismatch(c, v->plan, rank, &op, &other.rank, &other.op)) return;
  report(v, FINDING_MISMATCHED_COLLECTIVES, rank, NO_OP, op);
  finding *f = &v->findings.items[v->findings.count - 1];
  f->places = v->places.count;
  f->place_count = 1;
  *ARRAY_PUSH(&v->places) = other;
}

static void count_assumed(verification *v, uint32_t rank)
{
  const plan *p = v->plan;
  v->assumed += v->order.communicators.unmet[rank];
  for (uint32_t i = 0; i < v->order.ranks[rank].message_count; i++) {
    const plan_op *o = message_of(v, rank, i);
    const plan_message *m = &p->messages.items[o->arg];
    v->assumed += !rank_is_present(p, o->kind == OP_SEND ? m->to_rank : m->from_rank);
  }
}

static void find_event_faults(verification *v, uint32_t rank, arena *a)
{
  look_at_waits(v, rank, a);
  match_messages(v, rank, a);
  match_collectives(v, rank);
  count_assumed(v, rank);
}

/* ---- leaks ---------------------------------------------------------------------------------- */

/*
 * Buffers that an iteration leaves. A steady iteration ends with as many buffers of each pool,
 * class and size as it began with; the first one, which begins with the setup of the model, does
 * not have to.
 */
typedef struct kept {
  int64_t bytes;
  uint32_t buffer, made; /* `made`: the op that allocated it, NO_OP: it was there before */
  uint8_t purpose, stream;
} kept;

static int order_of_kept(const void *left, const void *right)
{
  const kept *a = left, *b = right;
  if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
  if (a->purpose != b->purpose) return a->purpose < b->purpose ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static bool is_alike(const kept *a, const kept *b)
{
  return a->stream == b->stream && a->purpose == b->purpose && a->bytes == b->bytes;
}

/* By buffer, in ops [begin, end): whether it is alive, and the op that has allocated it. */
static void keep_alive(const rank_plan *p, const op_gap *gap, uint32_t begin, uint32_t end,
                       bool *alive, uint32_t *made)
{
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *o = &p->ops.items[i];
    if (!op_is_memory((op_kind)o->kind)) continue;
    bool taken = o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC;
    uint32_t buffer = gap_name(gap, &gap->buffers, i, o->arg);
    assert(alive[buffer] != taken);
    alive[buffer] = taken;
    if (taken) made[buffer] = i;
  }
}

/* Whether each buffer is alive at the end. `made`: by buffer, the op that allocated it, NO_OP for
 * residents. */
static bool *find_alive(const rank_plan *p, const op_gap *gap, uint32_t *made, arena *a)
{
  bool *alive = ARENA_ARRAY(a, bool, p->buffers.count);
  for (uint32_t b = 0; b < p->residents; b++) {
    alive[b] = true;
    made[b] = NO_OP;
  }
  keep_alive(p, gap, 0, gap->begin, alive, made);
  keep_alive(p, gap, gap->end, p->ops.count, alive, made);
  return alive;
}

/* A step may leave the last micro-batch's input in the pool of whichever stream made it: if the
 * step ends with that buffer in another pool, nothing is lost. */
static uint8_t pool_of(const plan_buffer *b)
{
  return b->purpose == CLASS_RETAINED ? STREAM_COMPUTE : b->stream;
}

typedef struct kept_array {
  kept *items;
  uint32_t count, capacity;
} kept_array;

/* Of the first `count` buffers; `alive`: NULL, all of them. */
static kept_array collect(const rank_plan *p, uint32_t count, const bool *alive,
                          const uint32_t *made)
{
  kept_array out = { 0 };
  assert(count <= p->buffers.count);
  for (uint32_t b = 0; b < count; b++) {
    const plan_buffer *what = &p->buffers.items[b];
    if (alive == NULL || alive[b])
      *ARRAY_PUSH(&out) = (kept){ what->bytes, b, made[b], what->purpose, pool_of(what) };
  }
  if (out.count > 0) qsort(out.items, out.count, sizeof *out.items, order_of_kept);
  return out;
}

/* A spare buffer of a host pool stays in the pool, whichever tensor has used it. */
static bool is_spare(const rank_plan *p, const kept *k)
{
  return p->buffers.items[k->buffer].host_key != 0;
}

static void find_leaks(verification *v, uint32_t rank, arena *a)
{
  const rank_plan *p = &v->plan->ranks[rank];
  if (is_first_step(p)) return;
  uint32_t *made = ARENA_UNSET_ARRAY(a, uint32_t, p->buffers.count);
  const bool *alive = find_alive(p, &v->gaps[rank], made, a);
  kept_array before = collect(p, p->residents, NULL, made);
  kept_array after = collect(p, p->buffers.count, alive, made);
  for (uint32_t i = 0, k = 0; i < after.count; i++) {
    const kept *left = &after.items[i];
    while (k < before.count && order_of_kept(&before.items[k], left) < 0 &&
           !is_alike(&before.items[k], left))
      k++;
    bool was_there = k < before.count && is_alike(&before.items[k], left);
    k += was_there;
    if (!was_there && left->made != NO_OP && !is_spare(p, left))
      add_finding(v, (finding){ .kind = FINDING_LEAK,
                                .rank = rank,
                                .first = NO_OP,
                                .second = left->made,
                                .buffer = left->buffer,
                                .reused = NO_BUFFER });
  }
  ARRAY_FREE(&before);
  ARRAY_FREE(&after);
}

/* ---- all rules ------------------------------------------------------------------------------ */

static int by_place(const void *left, const void *right)
{
  const finding *a = left, *b = right;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  if (a->step_before != b->step_before) return b->step_before ? -1 : 1;
  if (a->second != b->second) return a->second < b->second ? -1 : 1;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
  return a->stream < b->stream ? -1 : a->stream > b->stream;
}

/* Ranks have findings of their own until all are found: threads share none. */
typedef struct verifying {
  const verification *all;
  const plan *before;
  verification *of_rank; /* [rank_count] */
} verifying;

static verification new_of_rank(const verifying *x, uint32_t rank)
{
  verification v = { .plan = x->all->plan,
                     .gaps = x->all->gaps,
                     .order = x->all->order,
                     .seen = x->all->seen,
                     .turns = x->all->turns,
                     .errors_alone = x->all->errors_alone,
                     .stuck = x->all->stuck };
  arena scratch = { 0 };
  find_buffer_races(&v, rank, x->before, &scratch);
  find_event_faults(&v, rank, &scratch);
  find_leaks(&v, rank, &scratch);
  arena_release(&scratch);
  return v;
}

static void verify_rank(void *context, uint32_t rank)
{
  const verifying *x = context;
  x->of_rank[rank] = new_of_rank(x, rank);
}

static void take_findings(verification *v, verification *of_rank)
{
  uint32_t places = v->places.count;
  for (uint32_t i = 0; i < of_rank->places.count; i++)
    *ARRAY_PUSH(&v->places) = of_rank->places.items[i];
  for (uint32_t i = 0; i < of_rank->findings.count; i++) {
    finding f = of_rank->findings.items[i];
    if (f.place_count > 0) f.places += places;
    add_finding(v, f);
  }
  v->assumed += of_rank->assumed;
  verification_release(of_rank);
}

static verification new_verification(const plan *p, bool errors_alone, uint32_t threads, arena *a)
{
  const op_gap *gaps = no_gaps(p, a);
  verification v = { .plan = p,
                     .gaps = gaps,
                     .order = plan_order_new(p, gaps, !errors_alone, threads, a),
                     .seen = bytes_of_views(p, false, a),
                     .turns = views_turn(p) ? bytes_of_views(p, true, a) : NULL,
                     .errors_alone = errors_alone };
  find_deadlocks(&v, a);
  return v;
}

/* ---- shortened plans ------------------------------------------------------------------------ */

typedef struct proof {
  const shortened *of;
  const plan *before;
  const plan_order *order;
  const byte_range *seen, *turns;
  bool *holds;        /* by rank */
  atomic_bool *fails; /* one of them does not hold: the others need not be looked at */
} proof;

static void prove_rank(void *context, uint32_t rank)
{
  const proof *x = context;
  if (atomic_load(x->fails)) return;
  verification v = { .plan = x->of->plan,
                     .gaps = x->of->gaps,
                     .order = *x->order,
                     .seen = x->seen,
                     .turns = x->turns,
                     .errors_alone = true };
  arena scratch = { 0 };
  x->holds[rank] = has_no_buffer_races(&v, rank, x->before, &x->of->cuts[rank], &scratch);
  if (x->holds[rank]) {
    find_event_faults(&v, rank, &scratch);
    find_leaks(&v, rank, &scratch);
    x->holds[rank] = v.findings.count == 0;
  }
  if (!x->holds[rank]) atomic_store(x->fails, true);
  verification_release(&v);
  arena_release(&scratch);
}

static bool prove_ranks(const shortened *s, const plan_order *o, const plan *before,
                        uint32_t threads, arena *a)
{
  uint32_t ranks = s->plan->rank_count, safe = 0;
  atomic_bool fails = false;
  proof x = { .of = s,
              .before = before,
              .order = o,
              .seen = bytes_of_views(s->plan, false, a),
              .turns = views_turn(s->plan) ? bytes_of_views(s->plan, true, a) : NULL,
              .holds = ARENA_ARRAY(a, bool, ranks),
              .fails = &fails };
  parallel_for(ranks, threads, prove_rank, &x);
  for (uint32_t r = 0; r < ranks; r++)
    safe += x.holds[r];
  return safe == ranks;
}

/* *early: the turns that come before the cuts differ, but later ones may not. */
static bool prove(const shortened *s, const plan *before, uint32_t threads, bool *early, arena *a)
{
  plan_order o = plan_order_new(s->plan, s->gaps, false, threads, a);
  *early = false;
  if (is_stuck(&o, s->plan->rank_count)) return false;
  *early = !order_repeats(s, &o, a);
  if (*early) return false;
  bool safe = prove_ranks(s, &o, before, threads, a);
  for (uint32_t r = 0; r < s->plan->rank_count; r++)
    *early |= s->cuts[r].differs;
  return safe;
}

/* What the warm-up has left behind is nearly always over after the first turn. */
enum { FEWEST_TURNS_BEFORE_CUT = 2, MOST_TURNS_BEFORE_CUT = 3 };

bool plan_is_safe_by_turns(const plan *p, const plan *before, uint32_t threads)
{
  bool safe = false, early = plan_repeats(p);
  for (uint32_t turns = FEWEST_TURNS_BEFORE_CUT; early && turns <= MOST_TURNS_BEFORE_CUT; turns++) {
    arena scratch = { 0 };
    shortened s;
    safe = plan_shorten(&s, p, turns, &scratch) && prove(&s, before, threads, &early, &scratch);
    arena_release(&scratch);
  }
  return safe;
}

static void verify_ranks(verification *v, const plan *before, uint32_t threads, arena *a)
{
  const plan *p = v->plan;
  verifying x = { v, before, ARENA_ARRAY(a, verification, p->rank_count) };
  parallel_for(p->rank_count, threads, verify_rank, &x);
  for (uint32_t r = 0; r < p->rank_count; r++)
    take_findings(v, &x.of_rank[r]);
  if (v->findings.count > 0)
    qsort(v->findings.items, v->findings.count, sizeof *v->findings.items, by_place);
  for (uint32_t i = 0; i < v->findings.count; i++)
    v->counts[finding_severity_of((finding_kind)v->findings.items[i].kind)]++;
  v->safe = v->counts[SEVERITY_ERROR] == 0;
  assert(!v->errors_alone || v->counts[SEVERITY_ERROR] == v->findings.count);
}

void verify_plan(verification *v, const plan *p, const plan *before, uint32_t threads, arena *a)
{
  *v = new_verification(p, false, threads, a);
  verify_ranks(v, before, threads, a);
}

void verify_errors(verification *v, const plan *p, const plan *before, uint32_t threads, arena *a)
{
  *v = (verification){ .plan = p, .errors_alone = true, .safe = true };
  if (plan_is_safe_by_turns(p, before, threads)) return;
  *v = new_verification(p, true, threads, a);
  verify_ranks(v, before, threads, a);
}

/* Of a verification of errors alone. */
static bool has_error(finding *first, const verification *v)
{
  if (v->findings.count == 0) return false;
  qsort(v->findings.items, v->findings.count, sizeof *v->findings.items, by_place);
  *first = v->findings.items[0];
  return true;
}

bool plan_first_error(finding *first, const plan *p, const plan *before)
{
  if (plan_is_safe_by_turns(p, before, 1)) return false;
  arena scratch = { 0 };
  verification v = new_verification(p, true, 1, &scratch);
  verifying x = { &v, before, NULL };
  bool found = has_error(first, &v);
  for (uint32_t r = 0; !found && r < p->rank_count; r++) {
    verification of_rank = new_of_rank(&x, r);
    found = has_error(first, &of_rank);
    verification_release(&of_rank);
  }
  verification_release(&v);
  arena_release(&scratch);
  return found;
}

void verification_release(verification *v)
{
  ARRAY_FREE(&v->findings);
  ARRAY_FREE(&v->places);
}
