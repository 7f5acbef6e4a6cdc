#include "sim/verify/order.h"

#include <assert.h>
#include <string.h>

typedef struct stream_state {
  uint32_t next;  /* the stream's next op, issued or not; NO_OP: none */
  uint32_t waits; /* number of the host's waits that came before its ops so far */
  bool posted;    /* `next` begins an exchange that the other sides know of */
  knowledge knows;
  const knowledge *noted; /* the same as its last op had it; NULL: it has learnt more since */
} stream_state;

typedef struct rank_state {
  const rank_plan *plan;
  rank_order *out;
  uint32_t number;
  stream_state streams[DEVICE_STREAMS];
  uint32_t *following; /* by op: the next one of the same stream */
  knowledge *event;    /* by event */
  bool *recorded;      /* by event */
  knowledge host;
  const knowledge *host_noted; /* the same as its last op had it; NULL: it has learnt more since */
  knowledge *after_wait;       /* by wait of the host: what it knows from then on */
  uint32_t *wait_op;           /* by wait of the host */
  uint32_t wait_count, issued;
} rank_state;

/* What each side knew about all ranks when it reached a meeting of a communicator; NULL: it has
 * not. */
typedef struct meetings {
  const progress **reached; /* by turn */
} meetings;

typedef struct ordering {
  const plan *plan;
  rank_state *ranks;
  /* By message, for sender and receiver: what the side knew about all ranks when it reached the
   * message; NULL: it has not. */
  const progress *(*messages)[2];
  const communicators *communicators;
  meetings **meetings; /* [rank][communicator] */
  bool news;           /* what waits say is noted */
  arena *memory;
} ordering;

/* ---- knowledge ----------------------------------------------------------------------------- */

static void learn_progress(progress *p, const progress *more)
{
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (more->done_to[s] > p->done_to[s]) p->done_to[s] = more->done_to[s];
}

static bool covers(const progress *a, const progress *b, uint32_t ranks)
{
  for (uint32_t r = 0; r < ranks; r++)
    for (int s = 0; s < DEVICE_STREAMS; s++)
      if (a[r].done_to[s] < b[r].done_to[s]) return false;
  return true;
}

static void learn_others(const ordering *o, knowledge *k, const progress *more)
{
  uint32_t ranks = o->plan->rank_count;
  if (more == NULL || more == k->others) return;
  if (k->others == NULL || covers(more, k->others, ranks)) {
    k->others = more;
    return;
  }
  if (covers(k->others, more, ranks)) return;
  progress *sum = ARENA_ARRAY(o->memory, progress, ranks);
  memcpy(sum, k->others, ranks * sizeof *sum);
  for (uint32_t r = 0; r < ranks; r++)
    learn_progress(&sum[r], &more[r]);
  k->others = sum;
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

static void learn(const ordering *o, knowledge *k, const knowledge *more)
{
  learn_progress(&k->own, &more->own);
  learn_others(o, k, more->others);
}

/* All that a side of a message knows, including its own rank. */
static const progress *told(const ordering *o, const rank_state *r, const knowledge *k)
{
  progress *all = ARENA_ARRAY(o->memory, progress, o->plan->rank_count);
  if (k->others != NULL) memcpy(all, k->others, o->plan->rank_count * sizeof *all);
  learn_progress(&all[r->number], &k->own);
  return all;
}

/* ---- one rank ------------------------------------------------------------------------------ */

static void link_streams(rank_state *r)
{
  uint32_t wait = r->out->wait_count, message = r->out->message_count;
  for (uint32_t i = r->plan->ops.count; i-- > 0;) {
    const plan_op *op = &r->plan->ops.items[i];
    if (op_waits_for_event((op_kind)op->kind)) r->out->waits[--wait] = i;
    if (op_is_message((op_kind)op->kind)) r->out->messages[--message] = i;
    if (op->kind == OP_RECORD) {
      assert(r->out->record_of[op->arg] == NO_OP && "an event is recorded once");
      r->out->record_of[op->arg] = i;
    }
    if (!op_runs_on_stream((op_kind)op->kind)) continue;
    r->following[i] = r->streams[op->stream].next;
    r->streams[op->stream].next = i;
    r->out->streams |= UINT32_C(1) << op->stream;
  }
  assert(wait == 0 && message == 0);
}

/* In CUDA, waiting for an event that is not recorded yet does nothing. */
static bool is_recorded_later(const rank_state *r, uint32_t event, uint32_t op)
{
  assert(event < r->plan->events);
  return r->out->record_of[event] == NO_OP || r->out->record_of[event] > op;
}

static const knowledge nothing;

static void note(const ordering *o, rank_state *r, uint32_t op, const knowledge *k,
                 const knowledge **noted)
{
  if (*noted == NULL) {
    knowledge *now = ARENA_NEW(o->memory, knowledge);
    *now = *k;
    *noted = now;
  }
  assert(r->out->at[op] == &nothing && "an op is passed once");
  r->out->at[op] = *noted;
}

static bool run_host(const ordering *o, rank_state *r)
{
  uint32_t before = r->issued;
  for (; r->issued < r->plan->ops.count; r->issued++) {
    const plan_op *op = &r->plan->ops.items[r->issued];
    if (op_is_host_wait((op_kind)op->kind) && !is_recorded_later(r, op->arg, r->issued)) {
      if (!r->recorded[op->arg]) break;
      if (o->news) r->out->news[r->issued] = news_of(o, &r->host, &r->event[op->arg]);
      learn(o, &r->host, &r->event[op->arg]);
      r->host_noted = NULL;
      r->wait_op[r->wait_count] = r->issued;
      r->after_wait[r->wait_count++] = r->host;
    }
    if (!op_runs_on_stream((op_kind)op->kind)) note(o, r, r->issued, &r->host, &r->host_noted);
  }
  return r->issued != before;
}

/* From its op on, the stream knows what the host knew when it issued the op. */
static void learn_from_host(const ordering *o, rank_state *r, stream_state *s)
{
  for (; s->waits < r->wait_count && r->wait_op[s->waits] < s->next; s->waits++) {
    learn(o, &s->knows, &r->after_wait[s->waits]);
    s->noted = NULL;
  }
}

/* Events order ops; no rule asks whether an event itself is done. */
static bool does_work(const plan_op *o)
{
  return o->kind != OP_RECORD && o->kind != OP_WAIT;
}

static void pass(const ordering *o, rank_state *r, stream_state *s)
{
  uint32_t op = s->next;
  uint8_t stream = r->plan->ops.items[op].stream;
  assert(op < r->issued && s->knows.own.done_to[stream] < done_with(op));
  note(o, r, op, &s->knows, &s->noted);
  if (does_work(&r->plan->ops.items[op])) s->knows.own.done_to[stream] = done_with(op);
  s->next = r->following[op];
}

static bool is_message(const rank_state *r, uint32_t op)
{
  return op != NO_OP && op_is_message((op_kind)r->plan->ops.items[op].kind);
}

/* Consecutive messages of a stream are one exchange: the stream reaches all of them when the last
 * is issued. */
static void post_exchange(ordering *o, rank_state *r, stream_state *s)
{
  uint32_t last = s->next;
  while (is_message(r, r->following[last]))
    last = r->following[last];
  if (last >= r->issued) return;
  assert(!s->posted && "an exchange is posted once");
  s->posted = true;
  const progress *all = told(o, r, &s->knows);
  for (uint32_t k = s->next; is_message(r, k); k = r->following[k])
    o->messages[r->plan->ops.items[k].arg][r->plan->ops.items[k].kind == OP_RECV] = all;
}

/* A rank that the plan omits is assumed to be there, with nothing to say. */
static bool is_absent(const ordering *o, const rank_state *r, uint32_t op)
{
  const plan_message *m = &o->plan->messages.items[r->plan->ops.items[op].arg];
  return !rank_is_present(o->plan, m->from_rank == r->number ? m->to_rank : m->from_rank);
}

/* What the other side of a message knew when it reached the message. */
static const progress *other_side(const ordering *o, const rank_state *r, uint32_t op)
{
  const plan_op *message = &r->plan->ops.items[op];
  return o->messages[message->arg][message->kind != OP_RECV];
}

/* What another rank has told. */
static void learn_all(const ordering *o, const rank_state *r, knowledge *k, const progress *all)
{
  if (all == NULL) return;
  learn_others(o, k, all);
  learn_progress(&k->own, &all[r->number]);
}

static bool run_exchange(ordering *o, rank_state *r, stream_state *s)
{
  assert(is_message(r, s->next));
  if (!s->posted) post_exchange(o, r, s);
  if (!s->posted) return false;
  for (uint32_t k = s->next; is_message(r, k); k = r->following[k])
    if (other_side(o, r, k) == NULL && !is_absent(o, r, k)) return false;
  for (uint32_t k = s->next; is_message(r, k); k = r->following[k])
    learn_all(o, r, &s->knows, other_side(o, r, k));
  while (is_message(r, s->next)) {
    s->noted = NULL; /* two messages of an exchange may be in conflict */
    pass(o, r, s);
  }
  s->posted = false;
  return true;
}

/* Runs a collective; false: one of its ranks has not reached it yet. */
static bool run_collective(ordering *o, rank_state *r, stream_state *s)
{
  uint32_t number = o->communicators->of_call[r->plan->ops.items[s->next].arg];
  if (number == NO_COMMUNICATOR) {
    pass(o, r, s);
    return true;
  }
  const roster *mine = &o->communicators->rosters[r->number][number];
  uint32_t turn = o->communicators->turn[r->number][s->next];
  assert(mine->ops[turn] == s->next);
  const progress **reached = &o->meetings[r->number][number].reached[turn];
  if (*reached == NULL && mine->peer_count > 0) *reached = told(o, r, &s->knows);
  for (uint32_t i = 0; i < mine->peer_count; i++)
    if (turn >= o->communicators->rosters[mine->peers[i]][number].count ||
        o->meetings[mine->peers[i]][number].reached[turn] == NULL)
      return false;
  for (uint32_t i = 0; i < mine->peer_count; i++)
    learn_all(o, r, &s->knows, o->meetings[mine->peers[i]][number].reached[turn]);
  s->noted = NULL;
  pass(o, r, s);
  return true;
}

/* Runs a WAIT; false: the event is not recorded yet. */
static bool learn_from_event(const ordering *o, rank_state *r, stream_state *s, uint32_t event)
{
  if (is_recorded_later(r, event, s->next)) return true;
  if (!r->recorded[event]) return false;
  if (o->news) r->out->news[s->next] = news_of(o, &s->knows, &r->event[event]);
  learn(o, &s->knows, &r->event[event]);
  s->noted = NULL;
  return true;
}

/* Runs one op; false: it waits for something that has not happened yet. */
static bool run_op(ordering *o, rank_state *r, stream_state *s)
{
  const plan_op *op = &r->plan->ops.items[s->next];
  learn_from_host(o, r, s);
  switch ((op_kind)op->kind) {
  case OP_SEND:
  case OP_RECV: return run_exchange(o, r, s);
  case OP_WAIT:
    if (!learn_from_event(o, r, s, op->arg)) return false;
    break;
  case OP_RECORD:
    assert(!r->recorded[op->arg] && "an event is recorded once");
    r->event[op->arg] = s->knows;
    r->recorded[op->arg] = true;
    break;
  case OP_COLLECTIVE: return run_collective(o, r, s);
  case OP_KERNEL:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ: break;
  case OP_MARK:
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE:
  case OP_HOST_WAIT:
  case OP_HOST_READ:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: assert(0 && "an op of the host on a stream");
  }
  pass(o, r, s);
  return true;
}

static bool run_stream(ordering *o, rank_state *r, stream_state *s)
{
  uint32_t before = s->next;
  while (s->next < r->issued && run_op(o, r, s))
    continue;
  return s->next != before;
}

/* Runs everything that does not wait for another rank. Returns whether it ran anything. */
static bool run_rank(ordering *o, rank_state *r)
{
  bool any = false, moved = true;
  while (moved) {
    moved = run_host(o, r);
    for (int s = 0; s < DEVICE_STREAMS; s++)
      moved |= run_stream(o, r, &r->streams[s]);
    any |= moved;
  }
  return any;
}

static void close_rank(const ordering *o, rank_state *r)
{
  rank_order *out = r->out;
  assert(r->issued <= r->plan->ops.count && r->wait_count <= r->issued);
  out->end = r->host.own;
  learn_progress(&out->end, &r->streams[STREAM_COMPUTE].knows.own);
  out->stuck[STREAM_HOST] = r->issued < r->plan->ops.count ? r->issued : NO_OP;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    out->stuck[s] = r->streams[s].next;
    learn(o, &r->streams[s].knows, &r->host);
    out->tail[s] = r->streams[s].knows.own;
    out->others_tail[s] = r->streams[s].knows.others;
  }
  out->tail[STREAM_HOST] = r->host.own;
  out->others_tail[STREAM_HOST] = r->host.others;
}

/* ---- all ranks ----------------------------------------------------------------------------- */

bool is_first_step(const rank_plan *p)
{
  for (uint32_t i = 1; i < p->marks.count; i++)
    if (p->marks.items[i].kind == MARK_SETUP) return true;
  return false;
}

static void open_rank(ordering *o, rank_order *out, uint32_t number)
{
  rank_state *r = &o->ranks[number];
  const rank_plan *p = &o->plan->ranks[number];
  *r = (rank_state){ .plan = p, .out = out, .number = number };
  out->at = ARENA_ARRAY(o->memory, const knowledge *, p->ops.count);
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *op = &p->ops.items[i];
    out->at[i] = &nothing;
    out->wait_count += op_waits_for_event((op_kind)op->kind);
    out->message_count += op_is_message((op_kind)op->kind);
  }
  out->waits = ARENA_ARRAY(o->memory, uint32_t, out->wait_count);
  out->messages = ARENA_ARRAY(o->memory, uint32_t, out->message_count);
  if (o->news) out->news = ARENA_ARRAY(o->memory, uint16_t, p->ops.count);
  out->record_of = ARENA_ARRAY(o->memory, uint32_t, p->events);
  memset(out->record_of, 0xff, p->events * sizeof *out->record_of);
  r->following = ARENA_ARRAY(o->memory, uint32_t, p->ops.count);
  r->event = ARENA_ARRAY(o->memory, knowledge, p->events);
  r->recorded = ARENA_ARRAY(o->memory, bool, p->events);
  r->after_wait = ARENA_ARRAY(o->memory, knowledge, out->wait_count);
  r->wait_op = ARENA_ARRAY(o->memory, uint32_t, out->wait_count);
  bool follows = !is_first_step(p);
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    r->streams[s].next = NO_OP;
    if (follows) r->streams[s].knows.own.done_to[s] = STREAM_BEGUN;
  }
  link_streams(r);
}

static void open_meetings(ordering *o, uint32_t rank)
{
  const communicators *c = o->communicators;
  o->meetings[rank] = ARENA_ARRAY(o->memory, meetings, c->count);
  for (uint32_t k = 0; k < c->count; k++)
    o->meetings[rank][k].reached =
        ARENA_ARRAY(o->memory, const progress *, c->rosters[rank][k].count);
}

plan_order plan_order_new(const plan *p, bool news, arena *a)
{
  plan_order made = { .ranks = ARENA_ARRAY(a, rank_order, p->rank_count),
                      .communicators = communicators_of(p, a) };
  ordering o = { .plan = p, .memory = a, .news = news, .communicators = &made.communicators };
  o.ranks = ARENA_ARRAY(a, rank_state, p->rank_count);
  o.messages = arena_alloc(a, p->messages.count, sizeof *o.messages);
  o.meetings = ARENA_ARRAY(a, meetings *, p->rank_count);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    open_rank(&o, &made.ranks[r], r);
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
  const progress *others = o->ranks[rank].at[second]->others;
  uint8_t stream = p->ranks[rank].ops.items[first].stream;
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
  progress known = o->tail[r->ops.items[op].stream];
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (o->at[op]->own.done_to[s] >= STREAM_BEGUN && !(except >> s & 1))
      learn_progress(&known, &o->tail[s]);
  return known;
}

bool is_implied(const rank_plan *r, const rank_order *o, uint32_t wait)
{
  assert(o->news != NULL && "asked for");
  uint16_t news = o->news[wait];
  if (news == 0 || (news & NEWS_OF_STEP) != 0) return news == 0;
  progress without = known_step_before(r, o, wait, news), with = known_step_before(r, o, wait, 0);
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
  assert(op_runs_on_stream((op_kind)ops[first].kind));
  if (stream == ops[second].stream ||
      r->tail[ops[second].stream].done_to[stream] >= done_with(first))
    return true;
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (r->at[second]->own.done_to[s] >= STREAM_BEGUN &&
        r->tail[s].done_to[stream] >= done_with(first))
      return true;
  return other_rank_knows(p, o, rank, first, second);
}
