#include "sim/engine/skip.h"

#include <assert.h>
#include <string.h>

#include "sim/base/array.h"
#include "sim/base/parallel.h"
#include "sim/plan/repeats.h"

typedef struct time_list {
  int64_t *items;
  uint32_t count, capacity;
} time_list;

typedef struct message_list {
  message_state *items;
  uint32_t count, capacity;
} message_list;

/* A rank at the end of a turn. */
typedef struct rank_past {
  rank_state rank;
  rank_timeline figures;
  uint32_t undone;       /* the first op of a stream that is not done */
  time_list issued_ps;   /* of the ops from there to the last one issued */
  message_list messages; /* of the exchanges that its streams are in, in the order of streams */
  int64_t since_ps;      /* whatever its streams begin later begins from then on */
  int64_t read_ps;       /* rank_read_ps */
} rank_past;

/* A RECORD of the first turn. */
typedef struct turn_record {
  uint32_t op, event;
  plan_stream stream;
} turn_record;

typedef struct record_list {
  turn_record *items;
  uint32_t count, capacity;
} record_list;

/* What a turn of a rank contains. */
typedef struct rank_turn {
  id_array waits, reads; /* ops, counted from the turn's first; `waits` has reads, too */
  record_list records;
} rank_turn;

struct turn_skip {
  uint32_t look_at; /* compares when rank 0 has issued this number of ops; NO_OP: never again */
  bool kept;        /* there is a state to compare with, */
  rank_past *past;  /* ... by rank, */
  links_state *links;
  int64_t *since_ps, *before_since_ps; /* by rank */
  rank_turn *turns;                    /* by rank */
  uint32_t *by;                        /* by rank: by how many ops it is further than in `past` */
  int64_t by_ps;
  uint32_t left_out; /* turns of rank 0 */
};

static const plan_repeat *repeat_of(const rank_state *r)
{
  return &r->plan->repeat;
}

/* ---- set-up ------------------------------------------------------------------------------------- */

static void note_op(rank_turn *t, const plan_op *o, uint32_t first, uint32_t op)
{
  op_kind kind = (op_kind)o->kind;
  if (kind == OP_RECORD)
    *ARRAY_PUSH(&t->records) = (turn_record){ first + op, o->arg, (plan_stream)o->stream };
  if (op_waits_for_event(kind)) *ARRAY_PUSH(&t->waits) = op;
  if (kind == OP_HOST_READ) *ARRAY_PUSH(&t->reads) = op;
}

static rank_turn turn_of(const rank_plan *p)
{
  rank_turn t = { .waits = { 0 } };
  uint32_t first = p->repeat.first;
  for (uint32_t i = 0; i < p->repeat.ops; i++)
    note_op(&t, &p->ops.items[first + i], first, i);
  return t;
}

turn_skip *turn_skip_new(const engine *e, arena *a)
{
  uint32_t ranks = e->plan->rank_count;
  if (!plan_repeats(e->plan)) return NULL;
  turn_skip *t = ARENA_NEW(a, turn_skip);
  t->past = ARENA_ARRAY(a, rank_past, ranks);
  t->turns = ARENA_ARRAY(a, rank_turn, ranks);
  t->by = ARENA_ARRAY(a, uint32_t, ranks);
  t->since_ps = ARENA_ARRAY(a, int64_t, ranks);
  t->before_since_ps = ARENA_ARRAY(a, int64_t, ranks);
  t->links = links_state_new(e->links, a);
  for (uint32_t i = 0; i < ranks; i++)
    t->turns[i] = turn_of(&e->plan->ranks[i]);
  t->look_at = e->plan->ranks[0].repeat.first;
  return t;
}

void turn_skip_release(turn_skip *t, uint32_t ranks)
{
  for (uint32_t i = 0; t != NULL && i < ranks; i++) {
    ARRAY_FREE(&t->past[i].issued_ps);
    ARRAY_FREE(&t->past[i].messages);
    ARRAY_FREE(&t->turns[i].waits);
    ARRAY_FREE(&t->turns[i].reads);
    ARRAY_FREE(&t->turns[i].records);
  }
}

/* ---- the state now ------------------------------------------------------------------------------ */

/* The stream has no op in what is left of the rank's turns. */
static bool is_idle(const rank_state *r, const stream_state *s)
{
  return s->next >= repeat_end(repeat_of(r));
}

/* All that the rank can do next is in its turns. */
static bool is_inside(const rank_state *r)
{
  const plan_repeat *repeat = repeat_of(r);
  if (r->issued < repeat->first || r->issued >= repeat_end(repeat)) return false;
  for (uint32_t u = 0; u < r->used_count; u++)
    if (r->streams[r->used[u]].next < repeat->first) return false;
  return true;
}

/* Whatever the stream begins later begins from then on. */
static int64_t begins_from_ps(const rank_state *r, const stream_state *s)
{
  int64_t issue_ps = s->next < r->issued ? time_of(r, s->next)->start_ps : r->host_ps;
  return max_i64(s->free_ps, issue_ps);
}

static int64_t rank_since_ps(const rank_state *r)
{
  int64_t since_ps = r->host_ps;
  for (uint32_t u = 0; u < r->used_count; u++) {
    const stream_state *s = &r->streams[r->used[u]];
    if (!is_idle(r, s)) since_ps = min_i64(since_ps, begins_from_ps(r, s));
  }
  return since_ps;
}

static bool is_known(const rank_state *r, uint32_t event)
{
  uint32_t record = r->recorded_by[event];
  return record != NO_OP && record < r->streams[r->plan->ops.items[record].stream].next;
}

/* An op of the turns, before the wait, will record its event. Then the same wait of each later turn waits for
 * what that op of a later turn will record. */
static bool waits_ahead(const rank_state *r, uint32_t op)
{
  uint32_t event = r->plan->ops.items[op].arg, record = r->recorded_by[event];
  return !is_known(r, event) && record < op && record >= repeat_of(r)->first;
}

/* No value that the host reads later is older: a read sees which copies to the host came before its value
 * (host_read in engine.c). INT64_MAX: it reads none. */
static int64_t rank_read_ps(const rank_state *r, const rank_turn *t)
{
  const plan_repeat *repeat = repeat_of(r);
  int64_t read_ps = INT64_MAX, since_ps = rank_since_ps(r);
  uint32_t turn = repeat_turn_begin(repeat, r->issued);
  for (uint32_t k = 0; k < t->reads.count; k++)
    for (uint32_t op = turn + t->reads.items[k]; op < repeat_end(repeat); op += repeat->ops) {
      uint32_t event = r->plan->ops.items[op].arg;
      if (op < r->issued) continue;
      read_ps = min_i64(read_ps, is_known(r, event) ? r->event_ps[event] : since_ps);
      if (waits_ahead(r, op)) break;
    }
  return read_ps;
}

/* An op that has left the driver's queue before now never makes the host wait. */
static void shorten_queues(rank_state *r)
{
  for (uint32_t u = 0; u < r->used_count; u++) {
    stream_state *s = &r->streams[r->used[u]];
    while (s->queued > 0 &&
           (s->oldest < s->next ? time_of(r, s->oldest)->start_ps <= r->host_ps
                                : s->oldest == s->next && s->begun && s->begun_ps <= r->host_ps)) {
      s->oldest = r->following[s->oldest];
      s->queued--;
    }
  }
}

static uint32_t first_undone(const rank_state *r)
{
  uint32_t first = r->issued;
  for (uint32_t u = 0; u < r->used_count; u++)
    if (r->streams[r->used[u]].next < first) first = r->streams[r->used[u]].next;
  return first;
}

static bool is_in_exchange(const rank_state *r, const stream_state *s)
{
  return s->posted && op_is_message((op_kind)r->plan->ops.items[s->next].kind);
}

/* ---- keeping it --------------------------------------------------------------------------------- */

/* Adds the messages of the exchanges that the rank's streams are in, in the order of streams. */
static void add_exchanges(id_array *messages, const rank_state *r)
{
  const plan_op *ops = r->plan->ops.items;
  for (uint32_t u = 0; u < r->used_count; u++) {
    const stream_state *s = &r->streams[r->used[u]];
    if (!is_in_exchange(r, s)) continue;
    for (uint32_t k = s->next; k != NO_OP && op_is_message((op_kind)ops[k].kind);
         k = r->following[k])
      *ARRAY_PUSH(messages) = ops[k].arg;
  }
}

static void keep_messages(message_list *l, const engine *e, const rank_state *r)
{
  id_array messages = { 0 };
  add_exchanges(&messages, r);
  l->count = 0;
  for (uint32_t i = 0; i < messages.count; i++)
    *ARRAY_PUSH(l) = e->messages[messages.items[i]];
  ARRAY_FREE(&messages);
}

/* Of the ops from `from` on; right for those that are not done. */
static void keep_issue_times(time_list *l, const rank_state *r, uint32_t from)
{
  l->count = 0;
  for (uint32_t i = from; i < r->issued; i++)
    *ARRAY_PUSH(l) = time_of(r, i)->start_ps;
}

static void keep_rank(rank_past *p, const engine *e, const rank_state *r, const rank_turn *t)
{
  p->rank = *r;
  p->figures = *r->out;
  p->undone = first_undone(r);
  keep_issue_times(&p->issued_ps, r, p->undone);
  keep_messages(&p->messages, e, r);
  p->since_ps = rank_since_ps(r);
  p->read_ps = rank_read_ps(r, t);
}

static void keep(turn_skip *t, const engine *e)
{
  for (uint32_t i = 0; i < e->plan->rank_count; i++)
    keep_rank(&t->past[i], e, &e->ranks[i], &t->turns[i]);
  links_keep(e->links, t->links);
  t->kept = true;
}

/* ---- comparing ---------------------------------------------------------------------------------- */

/* A rank, now and a number of its turns earlier. */
typedef struct pair {
  const engine *engine;
  const rank_state *now;
  const rank_past *past;
  const rank_turn *turn;
  uint32_t by; /* ops */
  int64_t by_ps;
  int64_t read_ps; /* of the rank now */
} pair;

/* Times that only matter to a later one: both are past, or one is the other, later. */
static bool time_repeats(const pair *p, int64_t now_ps, int64_t since_ps, int64_t past_ps,
                         int64_t past_since_ps)
{
  return now_ps - past_ps == p->by_ps || (now_ps <= since_ps && past_ps <= past_since_ps);
}

/* When an op was issued that was not done then. */
static int64_t past_issue_ps(const pair *p, uint32_t op)
{
  assert(op >= p->past->undone && op - p->past->undone < p->past->issued_ps.count);
  return p->past->issued_ps.items[op - p->past->undone];
}

static int64_t past_begins_from_ps(const pair *p, const stream_state *s)
{
  const rank_state *r = &p->past->rank;
  return max_i64(s->free_ps, s->next < r->issued ? past_issue_ps(p, s->next) : r->host_ps);
}

static bool walk_repeats(const pair *p)
{
  const host_walk *now = &p->now->walk, *before = &p->past->rank.walk;
  uint32_t marks = p->by / repeat_of(p->now)->ops * repeat_of(p->now)->marks;
  for (int k = 0; k < MARK_KINDS; k++)
    if (now->last_mark[k] != before->last_mark[k] &&
        (before->last_mark[k] == NULL || now->last_mark[k] != before->last_mark[k] + marks))
      return false;
  return now->phase == before->phase && now->site == before->site;
}

/* The host's wait on which idle time of compute is blamed. */
static bool gap_repeats(const pair *p)
{
  const rank_state *now = p->now, *before = &p->past->rank;
  int64_t since_ps = begins_from_ps(now, &now->streams[STREAM_COMPUTE]);
  int64_t before_since_ps = past_begins_from_ps(p, &before->streams[STREAM_COMPUTE]);
  if (now->gap_to_ps <= since_ps && before->gap_to_ps <= before_since_ps) return true;
  return now->gap_to_ps - before->gap_to_ps == p->by_ps &&
         now->gap_from_ps - before->gap_from_ps == p->by_ps &&
         now->gap_because == before->gap_because;
}

static bool queue_repeats(const pair *p, const stream_state *now, const stream_state *before)
{
  if (now->queued != before->queued) return false;
  if (now->queued == 0) return true;
  if (now->oldest - before->oldest != p->by || before->oldest < repeat_of(p->now)->first)
    return false;
  const rank_timeline *out = p->now->out;
  for (uint32_t i = now->oldest; i < now->next; i = p->now->following[i])
    if (op_start_ps(out, i) - op_start_ps(out, i - p->by) != p->by_ps) return false;
  return true;
}

/* The end of the stream's last op delays the next one, unless that is issued later anyway. How long compute
 * was idle counts, too (shared_ps in engine.c). */
static bool freed_repeats(const pair *p, const stream_state *now, const stream_state *before,
                          plan_stream stream)
{
  const rank_state *r = p->now, *past = &p->past->rank;
  int64_t issue_ps = now->next < r->issued ? time_of(r, now->next)->start_ps : r->host_ps;
  int64_t past_ps = before->next < past->issued ? past_issue_ps(p, before->next) : past->host_ps;
  if (stream == STREAM_COMPUTE) return now->free_ps - before->free_ps == p->by_ps;
  return time_repeats(p, now->free_ps, issue_ps, before->free_ps, past_ps);
}

static bool stream_repeats(const pair *p, plan_stream stream)
{
  const stream_state *now = &p->now->streams[stream], *before = &p->past->rank.streams[stream];
  if (is_idle(p->now, now) && now->next == before->next) return true;
  return now->next - before->next == p->by && now->posted == before->posted &&
         now->begun == before->begun && now->blamed == before->blamed &&
         (!now->begun || now->begun_ps - before->begun_ps == p->by_ps) &&
         time_repeats(p, now->held_until_ps, p->read_ps, before->held_until_ps, p->past->read_ps) &&
         freed_repeats(p, now, before, stream) && queue_repeats(p, now, before);
}

static bool issued_repeats(const pair *p)
{
  const rank_state *r = p->now;
  for (uint32_t i = first_undone(r); i < r->issued; i++) {
    const plan_op *o = &r->plan->ops.items[i];
    if (!op_runs_on_stream((op_kind)o->kind) || i < r->streams[o->stream].next) continue;
    if (time_of(r, i)->start_ps - past_issue_ps(p, i - p->by) != p->by_ps) return false;
  }
  return true;
}

static bool message_repeats(const pair *p, const message_state *now, const message_state *before)
{
  const int64_t nows[] = { now->ready_ps[0], now->ready_ps[1], now->done_ps };
  const int64_t thens[] = { before->ready_ps[0], before->ready_ps[1], before->done_ps };
  for (int i = 0; i < 3; i++) {
    if ((nows[i] == UNKNOWN) != (thens[i] == UNKNOWN)) return false;
    if (nows[i] != UNKNOWN && nows[i] - thens[i] != p->by_ps) return false;
  }
  return true;
}

/* Streams are in exchanges where they were in the past (stream_repeats). */
static bool messages_repeat(const pair *p)
{
  message_list now = { 0 };
  keep_messages(&now, p->engine, p->now);
  bool repeats = now.count == p->past->messages.count;
  for (uint32_t i = 0; i < now.count && repeats; i++)
    repeats = message_repeats(p, &now.items[i], &p->past->messages.items[i]);
  ARRAY_FREE(&now);
  return repeats;
}

static bool host_repeats(const pair *p)
{
  const rank_state *now = p->now, *before = &p->past->rank;
  return now->host_ps - before->host_ps == p->by_ps && now->in_graph == before->in_graph &&
         now->runnable == before->runnable && now->accumulated_ps == before->accumulated_ps &&
         now->holds_left == before->holds_left &&
         time_repeats(p, now->copied_out_ps, p->read_ps, before->copied_out_ps, p->past->read_ps) &&
         walk_repeats(p);
}

static bool rank_repeats(const pair *p)
{
  if (!host_repeats(p)) return false;
  for (uint32_t u = 0; u < p->now->used_count; u++)
    if (!stream_repeats(p, (plan_stream)p->now->used[u])) return false;
  return gap_repeats(p) && messages_repeat(p) && issued_repeats(p);
}

/* ---- for how many turns ------------------------------------------------------------------------- */

/* A wait that is still to come meets the same event as the one `by` ops earlier did in the past. */
static bool wait_repeats(const pair *p, uint32_t op)
{
  const plan_op *o = &p->now->plan->ops.items[op];
  uint32_t event = o->arg, before = (o - p->by)->arg;
  bool known = is_known(p->now, event);
  if (known != is_known(&p->past->rank, before)) return false;
  if (!known) return true;
  const int64_t *event_ps = p->now->event_ps;
  const uint8_t *streams = p->now->event_stream;
  if (event_ps[event] - event_ps[before] == p->by_ps && streams[event] == streams[before])
    return true;
  int64_t since_ps = p->now->host_ps, past_since_ps = p->past->rank.host_ps;
  if (o->stream != STREAM_HOST) {
    since_ps = begins_from_ps(p->now, &p->now->streams[o->stream]);
    past_since_ps = past_begins_from_ps(p, &p->past->rank.streams[o->stream]);
  }
  return event_ps[event] <= min_i64(since_ps, p->read_ps) &&
         event_ps[before] <= min_i64(past_since_ps, p->past->read_ps);
}

static bool is_to_come(const rank_state *r, uint32_t op)
{
  const plan_op *o = &r->plan->ops.items[op];
  return op >= (o->stream == STREAM_HOST ? r->issued : r->streams[o->stream].next);
}

/* The first wait before `end` that meets another event than a turn earlier; `end`: none does. */
static uint32_t end_of_waits(const pair *p, uint32_t end)
{
  const rank_state *r = p->now;
  const plan_repeat *repeat = repeat_of(r);
  uint32_t from = first_undone(r), turn = repeat_turn_begin(repeat, from);
  for (uint32_t k = 0; k < p->turn->waits.count; k++)
    for (uint32_t op = turn + p->turn->waits.items[k]; op < end; op += repeat->ops) {
      if (op < from || !is_to_come(r, op)) continue;
      if (!wait_repeats(p, op)) end = op;
      if (waits_ahead(r, op)) break;
    }
  return end;
}

/* The first op before `end` whose slowdown is another one than a turn earlier; `end`: none is. Ops that share
 * the rows of a turn need no comparison. */
static uint32_t end_of_slowdowns(const pair *p, uint32_t end)
{
  const rank_plan *r = p->now->plan;
  const slowdown *s = p->now->slowdown;
  if (s == NULL) return end;
  const turn_cut *c = &s->cut;
  for (uint32_t i = first_undone(p->now); i < end; i++) {
    bool share = i - p->by >= c->highest && i < c->lowest + c->ops && p->by % c->turn == 0;
    if (share) i = c->lowest + c->ops;
    if (i < end && op_runs_on_stream((op_kind)r->ops.items[i].kind) &&
        slowdown_ppm(s, r, i) != slowdown_ppm(s, r, i - p->by))
      return i;
  }
  return end;
}

/* How many times page-locking repeats, at most `most`. */
static uint32_t count_page_locks(const pair *p, uint32_t most)
{
  const rank_state *r = p->now;
  uint32_t each = r->host_allocs - p->past->rank.host_allocs;
  if (r->page_lock_ps == NULL || each == 0) return most;
  for (uint32_t i = 0; i < most * each; i++)
    if (r->page_lock_ps[r->host_allocs + i] != r->page_lock_ps[r->host_allocs + i - each])
      return i / each;
  return most;
}

/* Everything ends before TIME_LIMIT_PS. */
static uint32_t count_in_limit(const pair *p, uint32_t most)
{
  int64_t at_ps = p->now->host_ps;
  for (uint32_t u = 0; u < p->now->used_count; u++)
    at_ps = max_i64(at_ps, p->now->streams[p->now->used[u]].free_ps);
  if (p->by_ps == 0) return most;
  int64_t times = (TIME_LIMIT_PS - at_ps) / p->by_ps - 1;
  return times < 0 ? 0 : (uint32_t)min_i64(most, times);
}

/* How many times the rank repeats its ops since `past`. The last turn is never left out: an exchange may
 * go on after it. */
static uint32_t count_times(const pair *p)
{
  const rank_state *r = p->now;
  uint32_t end = repeat_end(repeat_of(r)) - repeat_of(r)->ops;
  if (r->hold_at < end) end = r->hold_at;
  if (end < r->issued + p->by) return 0;
  end = end_of_slowdowns(p, end);
  if (end < r->issued + p->by) return 0;
  end = end_of_waits(p, end);
  if (end < r->issued) return 0;
  return count_in_limit(p, count_page_locks(p, (end - r->issued) / p->by));
}

static pair pair_of(const turn_skip *t, const engine *e, uint32_t rank)
{
  return (pair){ .engine = e,
                 .now = &e->ranks[rank],
                 .past = &t->past[rank],
                 .turn = &t->turns[rank],
                 .by = t->by[rank],
                 .by_ps = t->by_ps,
                 .read_ps = rank_read_ps(&e->ranks[rank], &t->turns[rank]) };
}

/* By how many ops each rank is further: whole turns, of which each has as many messages. */
static bool find_distances(turn_skip *t, const engine *e)
{
  uint32_t messages = 0;
  t->by_ps = e->ranks[0].host_ps - t->past[0].rank.host_ps;
  for (uint32_t i = 0; i < e->plan->rank_count; i++) {
    const plan_repeat *repeat = repeat_of(&e->ranks[i]);
    t->by[i] = e->ranks[i].issued - t->past[i].rank.issued;
    if (t->by[i] == 0 || t->by[i] % repeat->ops != 0) return false;
    uint32_t more = t->by[i] / repeat->ops * repeat->messages;
    if (i > 0 && more != messages) return false;
    messages = more;
  }
  return true;
}

/* How many times all do again what they did since the state that was kept; 0: they do not. */
static uint32_t count_all_times(turn_skip *t, const engine *e)
{
  uint32_t ranks = e->plan->rank_count, times = UINT32_MAX;
  if (!find_distances(t, e)) return 0;
  for (uint32_t i = 0; i < ranks; i++) {
    pair p = pair_of(t, e, i);
    if (!rank_repeats(&p)) return 0;
    t->since_ps[i] = rank_since_ps(&e->ranks[i]);
    t->before_since_ps[i] = t->past[i].since_ps;
  }
  if (!links_repeat(e->links, t->links, t->by_ps, t->since_ps, t->before_since_ps)) return 0;
  for (uint32_t i = 0; i < ranks && times > 0; i++) {
    pair p = pair_of(t, e, i);
    uint32_t of_rank = count_times(&p);
    if (of_rank < times) times = of_rank;
  }
  return times;
}

/* ---- leaving out ---------------------------------------------------------------------------------- */

/* The times of an op from those `by` ops before. */
static void move_op(const pair *p, uint32_t op)
{
  op_time before = op_time_at(&p->now->out->ops, op - p->by);
  *time_of(p->now, op) = (op_time){ before.start_ps + p->by_ps, before.end_ps + p->by_ps };
}

/* The first op whose times the engine may ask for when it is `more` ops further: what is not done then, and
 * what is in the driver's queues. */
static uint32_t first_asked_for(const rank_state *r, uint32_t more, uint32_t undone)
{
  uint32_t first = undone;
  for (uint32_t u = 0; u < r->used_count; u++) {
    const stream_state *s = &r->streams[r->used[u]];
    if (s->queued > 0 && !is_idle(r, s) && s->oldest < first) first = s->oldest;
  }
  return first + more;
}

/* The ops issued next get no rows, up to the turns that the engine goes on with. Only once: later ones have
 * rows. Returns their number. */
static uint32_t leave_without_rows(const pair *p, rank_state *r, uint32_t more, uint32_t undone)
{
  uint32_t begin = r->issued, asked = first_asked_for(r, more, undone);
  if (r->out->ops.moved.count > 0 || asked < begin + p->by) return 0;
  uint32_t count = (asked - begin) / p->by * p->by;
  op_times_move(&r->out->ops, &(moved_ops){ begin, count, p->by, p->by_ps });
  return count;
}

/* The times of the ops of the turns left out: a turn earlier, plus the shift. Each stream is `more` ops
 * further then; what is issued and not done has the time of its issue. `issued_ps`: the times of issue now,
 * from op `undone` on. */
static void move_times(const pair *p, rank_state *r, uint32_t more, int64_t more_ps,
                       uint32_t undone, const int64_t *issued_ps)
{
  uint32_t i = undone;
  for (; i < r->issued && i < undone + more; i++)
    if (is_to_come(r, i) && op_runs_on_stream((op_kind)r->plan->ops.items[i].kind)) move_op(p, i);
  i += leave_without_rows(p, r, more, undone);
  op_times_reach(&r->out->ops, r->issued + more, r->plan->ops.count);
  for (; i < undone + more; i++)
    move_op(p, i);
  for (; i < r->issued + more; i++) {
    const plan_op *o = &r->plan->ops.items[i];
    bool on_stream = op_runs_on_stream((op_kind)o->kind);
    if (on_stream && i >= r->streams[o->stream].next + more)
      time_of(r, i)->start_ps = issued_ps[i - more - undone] + more_ps;
    else if (i >= (on_stream ? r->streams[o->stream].next : r->issued))
      move_op(p, i);
  }
}

/* The events that the turns left out record: each stream's next `more` ops. */
static void move_events(const pair *p, uint32_t more)
{
  const rank_state *r = p->now;
  const plan_repeat *repeat = repeat_of(r);
  uint32_t by = p->by / repeat->ops * repeat->events;
  for (uint32_t k = 0; k < p->turn->records.count; k++) {
    const turn_record *record = &p->turn->records.items[k];
    uint32_t op = record->op, event = record->event;
    for (; op < r->streams[record->stream].next; op += repeat->ops)
      event += repeat->events;
    assert(op + more < repeat_end(repeat));
    for (uint32_t left = more; left > 0; left -= repeat->ops, event += repeat->events) {
      r->event_ps[event] = r->event_ps[event - by] + p->by_ps;
      r->event_stream[event] = r->event_stream[event - by];
    }
  }
}

/* Adds to each figure what every time adds. */
static void add_figures(rank_timeline *out, const rank_timeline *before, uint32_t times)
{
  static const size_t figures[] = {
    offsetof(rank_timeline, compute_busy_ps), offsetof(rank_timeline, d2h_busy_ps),
    offsetof(rank_timeline, h2d_busy_ps),     offsetof(rank_timeline, waiting_slows_ps),
    offsetof(rank_timeline, exposed_d2h_ps),  offsetof(rank_timeline, exposed_h2d_ps),
    offsetof(rank_timeline, comm_wait_ps),
  };
  _Static_assert(sizeof *out == sizeof out->ops + sizeof figures / sizeof *figures * 8 + 8,
                 "all figures but the rank's end");
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
    int64_t *now = (int64_t *)(void *)((char *)out + figures[i]);
    *now += times * (*now - *(const int64_t *)(const void *)((const char *)before + figures[i]));
  }
}

/* The turns from which the rank goes on, and those with ops in the driver's queues, come into the lists and
 * get rows. */
static void list_moved(rank_state *r, uint32_t more, uint32_t undone)
{
  uint32_t from = repeat_turn_begin(repeat_of(r), first_asked_for(r, more, undone));
  r->listed = list_turns(r->following, r->plan, from, r->issued + more);
  op_times_reach(&r->out->ops, r->listed, r->plan->ops.count);
}

static void move_streams(rank_state *r, uint32_t ops, int64_t ps)
{
  for (uint32_t u = 0; u < r->used_count; u++) {
    stream_state *s = &r->streams[r->used[u]];
    if (is_idle(r, s)) continue;
    s->next += ops;
    s->oldest += ops;
    s->begun_ps += ps;
    s->free_ps += ps;
    s->held_until_ps += ps;
  }
}

static void move_walk(host_walk *w, const host_walk *before, uint32_t times)
{
  for (int k = 0; k < MARK_KINDS; k++)
    if (w->last_mark[k] != before->last_mark[k])
      w->last_mark[k] += times * (w->last_mark[k] - before->last_mark[k]);
}

/* The turns left out, for slowdown.c. */
static void note_turns(const pair *p, rank_state *r, uint32_t times)
{
  equal_turns t = { .ops = p->by, .times = times, .ps = p->by_ps };
  if (times * p->by <= r->turns.times * r->turns.ops) return;
  for (int i = 0; i < DEVICE_STREAMS; i++) {
    const stream_state *s = &r->streams[i];
    t.first[i] = s->next;
    if (is_idle(r, s))
      t.others_ps = max_i64(t.others_ps, s->free_ps);
    else
      t.streams |= UINT32_C(1) << i;
  }
  r->turns = t;
}

static void move_rank(const pair *p, rank_state *r, uint32_t times)
{
  note_turns(p, r, times);
  uint32_t undone = first_undone(r);
  int64_t ps = (int64_t)times * p->by_ps;
  time_list issued_ps = { 0 };
  keep_issue_times(&issued_ps, r, undone);
  move_times(p, r, times * p->by, ps, undone, issued_ps.items);
  ARRAY_FREE(&issued_ps);
  move_events(p, times * p->by);
  list_moved(r, times * p->by, undone);
  add_figures(r->out, &p->past->figures, times);
  move_streams(r, times * p->by, ps);
  move_walk(&r->walk, &p->past->rank.walk, times);
  r->issued += times * p->by;
  r->host_allocs += times * (r->host_allocs - p->past->rank.host_allocs);
  r->copied_out_ps += ps;
  r->host_ps += ps;
  r->gap_from_ps += ps;
  r->gap_to_ps += ps;
}

/* Of all ranks, in their order: a message is there twice if both sides are in it. */
static id_array exchanges_of_ranks(const engine *e)
{
  id_array messages = { 0 };
  for (uint32_t i = 0; i < e->plan->rank_count; i++)
    add_exchanges(&messages, &e->ranks[i]);
  return messages;
}

/* An exchange under way, of the messages `before`, is that of later ones. */
static void move_messages(engine *e, const id_array *before, int64_t ps)
{
  id_array after = exchanges_of_ranks(e);
  message_list states = { 0 };
  assert(after.count == before->count);
  for (uint32_t i = 0; i < before->count; i++)
    *ARRAY_PUSH(&states) = e->messages[before->items[i]];
  for (uint32_t i = 0; i < after.count; i++) {
    message_state m = states.items[i];
    for (int side = 0; side < 2; side++)
      if (m.ready_ps[side] != UNKNOWN) m.ready_ps[side] += ps;
    if (m.done_ps != UNKNOWN) m.done_ps += ps;
    e->messages[after.items[i]] = m;
  }
  ARRAY_FREE(&states);
  ARRAY_FREE(&after);
}

typedef struct moving {
  const turn_skip *skip;
  engine *engine;
  uint32_t times;
} moving;

static void move_rank_of(void *context, uint32_t rank)
{
  const moving *x = context;
  pair p = pair_of(x->skip, x->engine, rank);
  move_rank(&p, &x->engine->ranks[rank], x->times);
}

static void leave_out(const turn_skip *t, engine *e, uint32_t times)
{
  int64_t ps = (int64_t)times * t->by_ps;
  id_array messages = exchanges_of_ranks(e);
  parallel_for(e->plan->rank_count, e->threads, move_rank_of, &(moving){ t, e, times });
  move_messages(e, &messages, ps);
  ARRAY_FREE(&messages);
  links_move(e->links, ps);
}

/* The first op of the next turn of rank 0, NO_OP: there is none. */
static uint32_t next_turn(const engine *e)
{
  const plan_repeat *repeat = repeat_of(&e->ranks[0]);
  uint32_t next = repeat_turn_begin(repeat, e->ranks[0].issued) + repeat->ops;
  return next < repeat_end(repeat) ? next : NO_OP;
}

static bool all_inside(const engine *e)
{
  for (uint32_t i = 0; i < e->plan->rank_count; i++)
    if (!is_inside(&e->ranks[i])) return false;
  return true;
}

void skip_turns(engine *e)
{
  turn_skip *t = e->skip;
  if (t == NULL || e->ranks[0].issued < t->look_at) return;
  if (all_inside(e)) {
    for (uint32_t i = 0; i < e->plan->rank_count; i++)
      shorten_queues(&e->ranks[i]);
    uint32_t times = t->kept ? count_all_times(t, e) : 0;
    if (times > 0) leave_out(t, e, times);
    t->left_out += times * (t->by[0] / repeat_of(&e->ranks[0])->ops);
    keep(t, e);
  }
  t->look_at = next_turn(e);
}

uint32_t turns_left_out(const turn_skip *t)
{
  return t == NULL ? 0 : t->left_out;
}
