#include "sim/verify/order.h"

#include <assert.h>
#include <string.h>

#include "sim/base/parallel.h"

/*
 * Few ops say or learn anything: those that record an event or wait for one, messages, and collectives with
 * other ranks. These are the steps of an actor, which is a stream or the host thread. Between two steps it
 * does ops that order nothing, and hears what the host thread has learnt before it issued them.
 */
typedef struct step {
  uint32_t op;
  uint32_t done;   /* of the actor's own ops before it: as in progress, 0: none */
  uint32_t number; /* of the record or the wait; a collective's turn */
  uint32_t next;   /* the actor's next one, NO_STEP: none */
  bool joins;      /* a message of the same exchange as the step before */
} step;

#define NO_STEP UINT32_MAX

typedef struct actor {
  uint32_t next;  /* its next step, run or not; NO_STEP: none */
  uint32_t last;  /* its last step, NO_STEP: none */
  uint32_t steps; /* number of them */
  uint32_t done;  /* of its own ops, all in all */
  uint32_t heard; /* number of the host's lessons that came before its ops so far */
  bool posted;    /* `next` begins an exchange that the other sides know of */
  knowledge knows;
  const progress *included[STREAMS]; /* by actor: what it has said of other ranks so far */
} actor;

typedef struct rank_state {
  const rank_plan *plan;
  const op_gap *gap;
  rank_order *out;
  uint32_t number;
  actor actors[STREAMS];
  step *steps; /* in program order */
  uint32_t step_count;
  uint32_t issued; /* ops that the host thread has issued */
  arena memory;
} rank_state;

/* What each side knew about all ranks when it reached a meeting of a communicator; NULL: it has
 * not. */
typedef struct meetings {
  const progress **reached; /* by turn */
} meetings;

typedef struct ordering {
  const plan *plan;
  const op_gap *gaps; /* by rank */
  rank_state *ranks;
  rank_order *out; /* by rank */
  /* By message, for sender and receiver: what the side knew about all ranks when it reached the
   * message; NULL: it has not. */
  const progress *(*messages)[2];
  const communicators *communicators;
  meetings **meetings; /* [rank][communicator] */
  bool news;           /* what waits say is noted */
  arena *memory;
} ordering;

/* ---- knowledge ----------------------------------------------------------------------------- */

/* Returns whether there was anything to learn. */
static bool learn_progress(progress *p, const progress *more)
{
  uint32_t news = 0;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    uint32_t known = p->done_to[s], said = more->done_to[s];
    p->done_to[s] = said > known ? said : known;
    news |= said > known;
  }
  return news != 0;
}

static bool covers(const progress *a, const progress *b, uint32_t ranks)
{
  for (uint32_t r = 0; r < ranks; r++)
    for (int s = 0; s < DEVICE_STREAMS; s++)
      if (a[r].done_to[s] < b[r].done_to[s]) return false;
  return true;
}

static bool learn_others(const ordering *o, knowledge *k, const progress *more)
{
  uint32_t ranks = o->plan->rank_count;
  if (more == NULL || more == k->others) return false;
  if (k->others == NULL || covers(more, k->others, ranks)) {
    k->others = more;
    return true;
  }
  if (covers(k->others, more, ranks)) return false;
  progress *sum = ARENA_ARRAY(o->memory, progress, ranks);
  memcpy(sum, k->others, ranks * sizeof *sum);
  for (uint32_t r = 0; r < ranks; r++)
    learn_progress(&sum[r], &more[r]);
  k->others = sum;
  return true;
}

static uint16_t news_of(const ordering *o, const knowledge *k, const knowledge *more)
{
  uint32_t ranks = o->plan->rank_count;
  bool known = more->others == NULL || more->others == k->others ||
               (k->others != NULL && covers(k->others, more->others, ranks));
  uint16_t news = known ? 0 : NEWS_OF_STEP;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    if (more->own.done_to[s] <= k->own.done_to[s]) continue;
    news = (uint16_t)(news | (more->own.done_to[s] > STREAM_BEGUN ? NEWS_OF_STEP : 1u << s));
  }
  return news;
}

/* What another actor of the rank says; of other ranks it is mostly what it has said before. */
static bool learn_from(const ordering *o, actor *a, uint32_t stream, const knowledge *more)
{
  bool own = learn_progress(&a->knows.own, &more->own);
  if (more->others == a->included[stream]) return own;
  a->included[stream] = more->others;
  return learn_others(o, &a->knows, more->others) || own;
}

/* All that a side of a message knows, including its own rank. */
static const progress *told(const ordering *o, const rank_state *r, const knowledge *k)
{
  progress *all = ARENA_ARRAY(o->memory, progress, o->plan->rank_count);
  if (k->others != NULL) memcpy(all, k->others, o->plan->rank_count * sizeof *all);
  learn_progress(&all[r->number], &k->own);
  return all;
}

/* ---- steps --------------------------------------------------------------------------------- */

static void add_step(rank_state *r, uint32_t stream, uint32_t op, uint32_t number, bool joins)
{
  actor *a = &r->actors[stream];
  r->steps[r->step_count] = (step){ op, a->done, number, NO_STEP, joins };
  if (a->last == NO_STEP)
    a->next = r->step_count;
  else
    r->steps[a->last].next = r->step_count;
  a->last = r->step_count++;
  a->steps++;
}

static void add_wait(rank_state *r, uint32_t stream, uint32_t op)
{
  rank_order *out = r->out;
  uint32_t event = gap_name(r->gap, &r->gap->events, op, r->plan->ops.items[op].arg);
  if (event == NO_ID) {
    out->unknown = true;
    return;
  }
  add_step(r, stream, op, out->wait_count, false);
  out->waits[out->wait_count++] = (event_wait){ .op = op, .event = event };
}

static void add_record(rank_state *r, uint32_t stream, uint32_t op)
{
  rank_order *out = r->out;
  uint32_t event = r->plan->ops.items[op].arg;
  assert(out->record_of[event] == NO_RECORD && "an event is recorded once");
  add_step(r, stream, op, out->record_count, false);
  out->record_of[event] = out->record_count;
  out->records[out->record_count++] = (event_record){ .op = op };
}

static const plan_op *op_of_step(const rank_state *r, uint32_t number)
{
  return &r->plan->ops.items[r->steps[number].op];
}

/* Consecutive messages of a stream are one exchange. */
static void add_message(rank_state *r, uint32_t stream, uint32_t op)
{
  const actor *a = &r->actors[stream];
  bool joins = a->last != NO_STEP && op_is_message((op_kind)op_of_step(r, a->last)->kind) &&
               a->done == done_with(r->steps[a->last].op);
  add_step(r, stream, op, 0, joins);
  r->out->messages[r->out->message_count++] = op;
}

static void add_collective(const ordering *o, rank_state *r, uint32_t stream, uint32_t op)
{
  uint32_t number = o->communicators->of_call[r->plan->ops.items[op].arg];
  if (number != NO_COMMUNICATOR)
    add_step(r, stream, op, roster_turn(&o->communicators->rosters[r->number][number], op), false);
}

static void add_op(const ordering *o, rank_state *r, uint32_t op)
{
  const plan_op *of = &r->plan->ops.items[op];
  op_kind kind = (op_kind)of->kind;
  uint32_t stream = actor_stream(of);
  if (op_waits_for_event(kind)) add_wait(r, stream, op);
  if (kind == OP_RECORD) add_record(r, stream, op);
  if (kind == OP_COLLECTIVE) add_collective(o, r, stream, op);
  if (op_is_message(kind)) add_message(r, stream, op);
}

/* Of ops [begin, end). */
static void find_steps(const ordering *o, rank_state *r, uint32_t begin, uint32_t end)
{
  const uint32_t steps = 1u << OP_WAIT | 1u << OP_HOST_WAIT | 1u << OP_HOST_READ | 1u << OP_RECORD |
                         1u << OP_COLLECTIVE | 1u << OP_SEND | 1u << OP_RECV;
  for (uint32_t i = begin; i < end; i++) {
    const plan_op *op = &r->plan->ops.items[i];
    if (steps >> op->kind & 1) add_op(o, r, i);
    if (op_works((op_kind)op->kind)) r->actors[op->stream].done = done_with(i);
  }
}

/* ---- one rank ------------------------------------------------------------------------------ */

static void add_lesson(lesson_list *l, uint32_t from, const knowledge *knows)
{
  assert(l->count == 0 || l->items[l->count - 1].from <= from);
  l->items[l->count++] = (lesson){ from, *knows };
}

/* What the host thread has learnt before op `before`. */
static void hear_host(const ordering *o, rank_state *r, uint32_t stream, uint32_t before)
{
  actor *a = &r->actors[stream];
  const lesson_list *host = &r->out->lessons[STREAM_HOST];
  for (; a->heard < host->count && host->items[a->heard].from < before; a->heard++) {
    const lesson *heard = &host->items[a->heard];
    if (learn_from(o, a, STREAM_HOST, &heard->knows))
      add_lesson(&r->out->lessons[stream], heard->from, &a->knows);
  }
}

/* The first step after those of the exchange that begins with step `first`. */
static uint32_t end_of_exchange(const rank_state *r, uint32_t first)
{
  uint32_t k = r->steps[first].next;
  while (k != NO_STEP && r->steps[k].joins)
    k = r->steps[k].next;
  return k;
}

/* The stream reaches all messages of an exchange when the last is issued. */
static void post_exchange(ordering *o, rank_state *r, actor *a, uint32_t end)
{
  for (uint32_t k = a->next; k != end; k = r->steps[k].next)
    if (r->steps[k].op >= r->issued) return;
  assert(!a->posted && "an exchange is posted once");
  a->posted = true;
  const progress *all = told(o, r, &a->knows);
  for (uint32_t k = a->next; k != end; k = r->steps[k].next) {
    const plan_op *op = op_of_step(r, k);
    o->messages[op->arg][op->kind == OP_RECV] = all;
  }
}

/* A rank that the plan omits is assumed to be there, with nothing to say. */
static bool is_absent(const ordering *o, const rank_state *r, const plan_op *message)
{
  const plan_message *m = &o->plan->messages.items[message->arg];
  return !rank_is_present(o->plan, m->from_rank == r->number ? m->to_rank : m->from_rank);
}

/* What the other side of a message knew when it reached the message. */
static const progress *other_side(const ordering *o, const plan_op *message)
{
  return o->messages[message->arg][message->kind != OP_RECV];
}

/* What another rank has told. */
static bool learn_all(const ordering *o, const rank_state *r, knowledge *k, const progress *all)
{
  if (all == NULL) return false;
  bool own = learn_progress(&k->own, &all[r->number]);
  return learn_others(o, k, all) || own;
}

static void know_own_ops(actor *a, uint32_t stream, uint32_t done)
{
  if (stream != STREAM_HOST && done > a->knows.own.done_to[stream])
    a->knows.own.done_to[stream] = done;
}

static void end_step(rank_state *r, uint32_t stream, bool learns)
{
  actor *a = &r->actors[stream];
  const step *s = &r->steps[a->next];
  if (learns) add_lesson(&r->out->lessons[stream], s->op, &a->knows);
  a->next = s->next;
}

/* These run the actor's next step; false: it waits for something that has not happened yet. */

static bool run_exchange(ordering *o, rank_state *r, uint32_t stream)
{
  actor *a = &r->actors[stream];
  uint32_t end = end_of_exchange(r, a->next);
  if (!a->posted) post_exchange(o, r, a, end);
  if (!a->posted) return false;
  for (uint32_t k = a->next; k != end; k = r->steps[k].next)
    if (other_side(o, op_of_step(r, k)) == NULL && !is_absent(o, r, op_of_step(r, k))) return false;
  for (uint32_t k = a->next; k != end; k = r->steps[k].next)
    learn_all(o, r, &a->knows, other_side(o, op_of_step(r, k)));
  for (uint32_t k = a->next; k != end; k = r->steps[k].next) {
    know_own_ops(a, stream, r->steps[k].done); /* two messages of an exchange may be in conflict */
    add_lesson(&r->out->lessons[stream], r->steps[k].op, &a->knows);
  }
  a->posted = false;
  a->next = end;
  return true;
}

static bool run_collective(ordering *o, rank_state *r, uint32_t stream)
{
  actor *a = &r->actors[stream];
  uint32_t number = o->communicators->of_call[op_of_step(r, a->next)->arg];
  const roster *mine = &o->communicators->rosters[r->number][number];
  uint32_t turn = r->steps[a->next].number;
  const progress **reached = &o->meetings[r->number][number].reached[turn];
  if (*reached == NULL && mine->peer_count > 0) *reached = told(o, r, &a->knows);
  for (uint32_t i = 0; i < mine->peer_count; i++)
    if (turn >= o->communicators->rosters[mine->peers[i]][number].count ||
        o->meetings[mine->peers[i]][number].reached[turn] == NULL)
      return false;
  bool learns = false;
  for (uint32_t i = 0; i < mine->peer_count; i++)
    learns |= learn_all(o, r, &a->knows, o->meetings[mine->peers[i]][number].reached[turn]);
  end_step(r, stream, learns);
  return true;
}

static bool run_wait(const ordering *o, rank_state *r, uint32_t stream)
{
  actor *a = &r->actors[stream];
  bool learns = false;
  event_wait *wait = &r->out->waits[r->steps[a->next].number];
  uint32_t number = r->out->record_of[wait->event];
  if (number != NO_RECORD && r->out->records[number].op < wait->op) {
    const event_record *record = &r->out->records[number];
    if (!record->is_reached) return false;
    if (o->news) wait->news = news_of(o, &a->knows, &record->knows);
    learns = learn_from(o, a, r->plan->ops.items[record->op].stream, &record->knows);
  } /* else it does nothing, as in CUDA */
  end_step(r, stream, learns);
  return true;
}

static bool run_record(rank_state *r, uint32_t stream)
{
  const actor *a = &r->actors[stream];
  event_record *record = &r->out->records[r->steps[a->next].number];
  assert(!record->is_reached && "an event is recorded once");
  record->knows = a->knows;
  record->is_reached = true;
  end_step(r, stream, false);
  return true;
}

static bool run_step(ordering *o, rank_state *r, uint32_t stream)
{
  op_kind kind = (op_kind)op_of_step(r, r->actors[stream].next)->kind;
  if (kind == OP_RECORD) return run_record(r, stream);
  if (kind == OP_COLLECTIVE) return run_collective(o, r, stream);
  if (op_is_message(kind)) return run_exchange(o, r, stream);
  assert(op_waits_for_event(kind));
  return run_wait(o, r, stream);
}

/* Runs the steps that the host thread has issued. Returns whether it ran any. */
static bool run_actor(ordering *o, rank_state *r, uint32_t stream)
{
  actor *a = &r->actors[stream];
  uint32_t before = a->next;
  while (a->next != NO_STEP && r->steps[a->next].op < r->issued) {
    const step *s = &r->steps[a->next];
    if (stream != STREAM_HOST) hear_host(o, r, stream, s->op);
    know_own_ops(a, stream, s->done);
    if (!run_step(o, r, stream)) break;
  }
  return a->next != before;
}

static bool run_host(ordering *o, rank_state *r)
{
  const actor *host = &r->actors[STREAM_HOST];
  r->issued = r->plan->ops.count;
  bool any = run_actor(o, r, STREAM_HOST);
  if (host->next != NO_STEP) r->issued = r->steps[host->next].op;
  return any;
}

/* Runs everything that does not wait for another rank. Returns whether it ran anything. */
static bool run_rank(ordering *o, rank_state *r)
{
  bool any = false, moved = true;
  while (moved) {
    moved = run_host(o, r);
    for (uint32_t left = r->out->streams; left != 0; left &= left - 1)
      moved |= run_actor(o, r, (uint32_t)__builtin_ctz(left));
    any |= moved;
  }
  return any;
}

/* The actor's first op that is not run, NO_OP: none. */
static uint32_t stuck_op(const rank_state *r, uint32_t stream)
{
  const actor *a = &r->actors[stream];
  const op_array *ops = &r->plan->ops;
  if (a->next != NO_STEP && r->steps[a->next].op < r->issued) return r->steps[a->next].op;
  uint32_t i = r->issued;
  while (i < ops->count && actor_stream(&ops->items[i]) != stream)
    i++;
  return i < ops->count ? i : NO_OP;
}

/* What the stream's ops before op `stuck` have done. */
static uint32_t done_before(const rank_state *r, uint32_t stream, uint32_t stuck)
{
  if (stuck == NO_OP) return r->actors[stream].done;
  for (uint32_t i = stuck; i-- > 0;) {
    const plan_op *o = &r->plan->ops.items[i];
    if (o->stream == stream && op_works((op_kind)o->kind)) return done_with(i);
  }
  return 0;
}

static const knowledge nothing;

static void close_actor(const ordering *o, rank_state *r, uint32_t stream)
{
  actor *a = &r->actors[stream];
  rank_order *out = r->out;
  uint32_t stuck = out->stuck[stream] = stuck_op(r, stream);
  if (stream != STREAM_HOST) {
    hear_host(o, r, stream, stuck);
    know_own_ops(a, stream, done_before(r, stream, stuck));
  }
  if (stuck != NO_OP) add_lesson(&out->lessons[stream], stuck, &nothing);
  learn_from(o, a, STREAM_HOST, &r->actors[STREAM_HOST].knows);
  out->tail[stream] = a->knows.own;
  out->others_tail[stream] = a->knows.others;
}

static void close_rank(const ordering *o, rank_state *r)
{
  rank_order *out = r->out;
  assert(r->issued <= r->plan->ops.count);
  for (uint32_t s = 0; s < STREAMS; s++)
    close_actor(o, r, s);
  out->end = out->tail[STREAM_COMPUTE];
}

/* ---- all ranks ----------------------------------------------------------------------------- */

bool is_first_step(const rank_plan *p)
{
  for (uint32_t i = 1; i < p->marks.count; i++)
    if (p->marks.items[i].kind == MARK_SETUP) return true;
  return false;
}

static void count_kinds(uint32_t of_kind[OP_KINDS], const rank_plan *r, uint32_t begin,
                        uint32_t end)
{
  for (uint32_t i = begin; i < end; i++)
    of_kind[r->ops.items[i].kind]++;
}

/* Makes room for the rank's steps and what they say. */
static void make_room(rank_state *r)
{
  rank_order *out = r->out;
  uint32_t of_kind[OP_KINDS] = { 0 };
  count_kinds(of_kind, r->plan, 0, r->gap->begin);
  count_kinds(of_kind, r->plan, r->gap->end, r->plan->ops.count);
  uint32_t records = of_kind[OP_RECORD], messages = of_kind[OP_SEND] + of_kind[OP_RECV];
  uint32_t waits = of_kind[OP_WAIT] + of_kind[OP_HOST_WAIT] + of_kind[OP_HOST_READ];
  out->records = ARENA_UNSET_ARRAY(&r->memory, event_record, records);
  out->waits = ARENA_UNSET_ARRAY(&r->memory, event_wait, waits);
  out->messages = ARENA_UNSET_ARRAY(&r->memory, uint32_t, messages);
  out->record_of = ARENA_UNSET_ARRAY(&r->memory, uint32_t, r->plan->events);
  memset(out->record_of, 0xff, r->plan->events * sizeof *out->record_of);
  r->steps =
      ARENA_UNSET_ARRAY(&r->memory, step, records + waits + messages + of_kind[OP_COLLECTIVE]);
}

/* The actor has as many lessons as it has steps, and hears those of the host thread. */
static void open_actor(rank_state *r, uint32_t stream, bool follows)
{
  actor *a = &r->actors[stream];
  lesson_list *l = &r->out->lessons[stream];
  uint32_t most = a->steps + r->actors[STREAM_HOST].steps +
                  2; /* with the first and, if it is stuck, the last */
  l->items = ARENA_UNSET_ARRAY(&r->memory, lesson, most);
  if (follows && stream != STREAM_HOST) a->knows.own.done_to[stream] = STREAM_BEGUN;
  add_lesson(l, 0, &a->knows);
}

static void open_rank(void *context, uint32_t number)
{
  const ordering *o = context;
  rank_state *r = &o->ranks[number];
  *r = (rank_state){ .plan = &o->plan->ranks[number],
                     .gap = &o->gaps[number],
                     .out = &o->out[number],
                     .number = number };
  for (uint32_t s = 0; s < STREAMS; s++)
    r->actors[s].next = r->actors[s].last = NO_STEP;
  make_room(r);
  find_steps(o, r, 0, r->gap->begin);
  find_steps(o, r, r->gap->end, r->plan->ops.count);
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++)
    if (r->actors[s].done > 0 || r->actors[s].steps > 0) r->out->streams |= UINT32_C(1) << s;
  bool follows = !is_first_step(r->plan);
  for (uint32_t s = 0; s < STREAMS; s++)
    open_actor(r, s, follows);
}

static void open_meetings(ordering *o, uint32_t rank)
{
  const communicators *c = o->communicators;
  o->meetings[rank] = ARENA_ARRAY(o->memory, meetings, c->count);
  for (uint32_t k = 0; k < c->count; k++)
    o->meetings[rank][k].reached =
        ARENA_ARRAY(o->memory, const progress *, c->rosters[rank][k].count);
}

plan_order plan_order_new(const plan *p, const op_gap *gaps, bool news, uint32_t threads, arena *a)
{
  plan_order made = { .ranks = ARENA_ARRAY(a, rank_order, p->rank_count),
                      .communicators = communicators_of(p, gaps, a) };
  ordering o = { .plan = p,
                 .gaps = gaps,
                 .out = made.ranks,
                 .memory = a,
                 .news = news,
                 .communicators = &made.communicators };
  o.ranks = ARENA_ARRAY(a, rank_state, p->rank_count);
  o.messages = arena_alloc(a, p->messages.count, sizeof *o.messages);
  o.meetings = ARENA_ARRAY(a, meetings *, p->rank_count);
  parallel_for(p->rank_count, threads, open_rank, &o);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    arena_take(a, &o.ranks[r].memory);
    open_meetings(&o, r);
  }
  bool moved = true;
  while (moved) {
    moved = false;
    for (uint32_t r = 0; r < p->rank_count; r++)
      moved |= run_rank(&o, &o.ranks[r]);
  }
  for (uint32_t r = 0; r < p->rank_count; r++)
    close_rank(&o, &o.ranks[r]);
  return made;
}

bool is_stuck(const plan_order *o, uint32_t ranks)
{
  for (uint32_t r = 0; r < ranks; r++)
    for (uint32_t s = 0; s < STREAMS; s++)
      if (o->ranks[r].stuck[s] != NO_OP) return true;
  return false;
}

const knowledge *known_at(const rank_order *o, uint32_t stream, uint32_t op)
{
  const lesson_list *l = &o->lessons[stream];
  uint32_t low = 0, high = l->count;
  assert(high > 0 && l->items[0].from == 0);
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (l->items[middle].from <= op)
      low = middle;
    else
      high = middle;
  }
  return &l->items[low].knows;
}

bool is_same_exchange(const rank_plan *r, uint32_t first, uint32_t second)
{
  uint8_t stream = r->ops.items[first].stream;
  assert(first <= second && second < r->ops.count);
  for (uint32_t i = first; i <= second; i++) {
    const plan_op *o = &r->ops.items[i];
    if (o->stream == stream && op_runs_on_stream((op_kind)o->kind) &&
        !op_is_message((op_kind)o->kind))
      return false;
  }
  return true;
}

/* ---- the step before ----------------------------------------------------------------------- */

/* Whether a stream that has begun this step by `second`, on any rank, knew at the end of the step
 * before that `first` was done. */
static bool other_rank_knows(const plan *p, const plan_order *o, uint32_t rank, uint32_t first,
                             uint32_t second)
{
  const plan_op *ops = p->ranks[rank].ops.items;
  const progress *others = known_at(&o->ranks[rank], actor_stream(&ops[second]), second)->others;
  uint8_t stream = ops[first].stream;
  for (uint32_t r = 0; others != NULL && r < p->rank_count; r++)
    for (int s = 0; r != rank && s < DEVICE_STREAMS; s++) {
      const progress *tail = o->ranks[r].others_tail[s];
      if (others[r].done_to[s] >= STREAM_BEGUN && tail != NULL &&
          tail[rank].done_to[stream] >= done_with(first))
        return true;
    }
  return false;
}

/* What an op knows of the step before if it does not know that the streams of `except` have begun
 * this one. */
static progress known_step_before(const rank_plan *r, const rank_order *o, uint32_t op,
                                  uint16_t except)
{
  uint32_t stream = actor_stream(&r->ops.items[op]);
  const progress *own = &known_at(o, stream, op)->own;
  progress known = o->tail[stream];
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (own->done_to[s] >= STREAM_BEGUN && !(except >> s & 1)) learn_progress(&known, &o->tail[s]);
  return known;
}

bool is_implied(const rank_plan *r, const rank_order *o, const event_wait *wait)
{
  uint16_t news = wait->news;
  if (news == 0 || (news & NEWS_OF_STEP) != 0) return news == 0;
  progress without = known_step_before(r, o, wait->op, news),
           with = known_step_before(r, o, wait->op, 0);
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (with.done_to[s] > without.done_to[s] && with.done_to[s] > STREAM_BEGUN) return false;
  return true;
}

bool is_done_step_before(const plan *p, const plan_order *o, uint32_t rank, uint32_t first,
                         uint32_t second)
{
  const rank_order *r = &o->ranks[rank];
  const plan_op *ops = p->ranks[rank].ops.items;
  uint8_t stream = ops[first].stream;
  assert(op_runs_on_stream((op_kind)ops[first].kind) &&
         op_runs_on_stream((op_kind)ops[second].kind));
  if (stream == ops[second].stream ||
      r->tail[ops[second].stream].done_to[stream] >= done_with(first))
    return true;
  const progress *known = &known_at(r, ops[second].stream, second)->own;
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (known->done_to[s] >= STREAM_BEGUN && r->tail[s].done_to[stream] >= done_with(first))
      return true;
  return other_rank_knows(p, o, rank, first, second);
}
