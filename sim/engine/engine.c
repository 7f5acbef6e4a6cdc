#include "sim/engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/memory.h"
#include "sim/base/parallel.h"
#include "sim/base/units.h"
#include "sim/engine/skip.h"
#include "sim/engine/state.h"
#include "sim/machine/roofline.h"
#include "sim/plan/repeats.h"

/* Each time less is left. */
enum { MOST_FOLLOWS = 8 };

#define ALL_STREAMS ((UINT32_C(1) << DEVICE_STREAMS) - 1)

/* The end of something that begins at `from_ps` and takes `ps`. */
static int64_t time_after(engine *e, int64_t from_ps, int64_t ps)
{
  assert(from_ps >= 0 && ps >= 0);
  int64_t end_ps = from_ps + min_i64(ps, TIME_LIMIT_PS);
  if (end_ps <= TIME_LIMIT_PS) return end_ps;
  e->too_long = true;
  return max_i64(from_ps, TIME_LIMIT_PS);
}

/* ---- the host thread --------------------------------------------------------------------------- */

static void add_exposed(rank_timeline *out, plan_stream because, int64_t gap_ps)
{
  assert(because < STREAM_HOST);
  if (because == STREAM_D2H || because == STREAM_DISK_OUT)
    out->exposed_d2h_ps += gap_ps;
  else if (because == STREAM_H2D || because == STREAM_DISK_IN)
    out->exposed_h2d_ps += gap_ps;
  else if (because != STREAM_COMPUTE && because != STREAM_CPU)
    out->comm_wait_ps += gap_ps;
}

/* Compute was busy, or waited for another stream, in time that was blamed on the host's wait. */
static void take_back_gap(rank_state *r, int64_t from_ps, int64_t to_ps)
{
  int64_t first_ps = max_i64(from_ps, r->gap_from_ps);
  int64_t both_ps = min_i64(to_ps, r->gap_to_ps) - first_ps;
  assert(from_ps <= to_ps && r->gap_from_ps <= r->gap_to_ps);
  if (both_ps <= 0) return;
  add_exposed(r->out, r->gap_because, -both_ps);
  r->gap_from_ps = first_ps + both_ps;
}

/* Compute waits in its own stream, because of stream `because`. */
static void expose(rank_state *r, plan_stream because, int64_t from_ps, int64_t to_ps)
{
  if (to_ps <= from_ps) return;
  take_back_gap(r, from_ps, to_ps);
  add_exposed(r->out, because, to_ps - from_ps);
}

/* The host waits. Compute is idle once neither the host has issued more nor the compute stream has
 * work, as far as is known by now. */
static void wait_until(rank_state *r, int64_t at, plan_stream because)
{
  assert(at >= 0 && "what the host waits for is known");
  if (at <= r->host_ps) return;
  int64_t from_ps = max_i64(r->host_ps, r->streams[STREAM_COMPUTE].free_ps);
  if (at > from_ps) {
    add_exposed(r->out, because, at - from_ps);
    r->gap_from_ps = from_ps;
    r->gap_to_ps = at;
    r->gap_because = because;
  }
  r->host_ps = at;
}

/* The stream has a copy to the host that was issued and waited for no event at that time, so the engine has
 * it in its queue. */
static bool has_queued_out(const rank_state *r, const stream_state *s, int64_t at)
{
  assert(at <= r->host_ps && s->next != r->issued);
  const plan_op *ops = r->plan->ops.items;
  if (s->held_until_ps > at) return false;
  for (uint32_t i = s->next; i < r->issued; i = r->following[i]) {
    if (ops[i].kind == OP_D2H) return true;
    if (ops[i].kind != OP_WAIT) continue;
    int64_t event_ps = r->event_ps[ops[i].arg];
    if (event_ps == UNKNOWN || event_ps > at) return false;
  }
  return false;
}

/* Copies to the host have one engine, which serves them in the order in which it got them, whatever their
 * stream. So the few bytes that the host reads arrive after the offloaded tensors that were issued before
 * (a trace of experts with offload: 1 to 4.5 ms later than they were ready). False: not yet known. */
static bool host_read(const engine *e, rank_state *r, int64_t at)
{
  assert(at >= 0 && r->host_ps >= at);
  for (uint32_t i = 0; i < r->used_count; i++)
    if (has_queued_out(r, &r->streams[r->used[i]], at)) return false;
  int64_t free_ps = max_i64(at, r->copied_out_ps);
  wait_until(r, free_ps, STREAM_D2H);
  wait_until(r, free_ps + e->machine->link.d2h_latency_ns * PS_PER_NS, STREAM_COMPUTE);
  return true;
}

static bool host_wait(const engine *e, rank_state *r, const plan_op *o)
{
  assert(op_is_host_wait((op_kind)o->kind) && o->arg < r->plan->events);
  int64_t at = r->event_ps[o->arg];
  if (at == UNKNOWN) {
    r->waits |= UINT32_C(1) << STREAM_HOST;
    return false;
  }
  wait_until(r, at, (plan_stream)r->event_stream[o->arg]);
  return o->kind == OP_HOST_WAIT || host_read(e, r, at);
}

static void next_hold(rank_state *r, const host_hold *hold, uint32_t left)
{
  assert(left == 0 || (hold->at >= r->issued && hold->at < r->plan->ops.count));
  r->hold = hold;
  r->holds_left = left;
  r->hold_at = left > 0 ? hold->at : NO_OP;
}

/* False: the op that the hold waits for is not done. An op is done when its stream has passed
 * it. */
static bool pass_hold(engine *e, rank_state *r)
{
  uint32_t until = r->hold->until;
  assert(r->hold->at == r->issued && r->holds_left > 0);
  if (until != HOLD_FOR_NOTHING) {
    plan_stream stream = (plan_stream)r->plan->ops.items[until].stream;
    assert(until < r->hold_at && stream != STREAM_HOST);
    if (r->streams[stream].next <= until) return false;
    wait_until(r, op_end_ps(r->out, until), stream);
  }
  int64_t calls_ps = r->hold->driver_calls * e->machine->issue.driver_alloc_ns * PS_PER_NS;
  r->host_ps = time_after(e, r->host_ps, calls_ps);
  next_hold(r, r->hold + 1, r->holds_left - 1);
  return true;
}

/* Ops without a stream. This switch and the one in run_op cover every kind of op. */
static void run_host_op(engine *e, rank_state *r, const plan_op *o)
{
  switch ((op_kind)o->kind) {
  case OP_GRAPH_BEGIN:
    assert(!r->in_graph);
    r->host_ps += e->host.issue_ps[OP_GRAPH_BEGIN];
    r->in_graph = true;
    return;
  case OP_GRAPH_END:
    assert(r->in_graph);
    r->in_graph = false;
    return;
  case OP_HOST_ALLOC:
    if (r->page_lock_ps != NULL)
      r->host_ps = time_after(e, r->host_ps, r->page_lock_ps[r->host_allocs++]);
    return;
  case OP_MARK:
    r->host_ps += host_begin_phase_ps(&e->host, &r->walk, &r->plan->marks.items[o->arg]);
    return;
  case OP_HOST_WORK: r->host_ps = time_after(e, r->host_ps, host_work_ps(&e->host, o->arg)); return;
  case OP_HOST_FREE:
  case OP_HOST_WAIT:
  case OP_HOST_READ: return;
  case OP_ALLOC:
  case OP_FREE:
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_RECORD:
  case OP_WAIT:
  case OP_SEND:
  case OP_RECV:
  case OP_KINDS: break;
  }
  assert(0 && "an op of a stream on the host");
}

/* The stream's queue is full: the host waits until its oldest op begins. */
static inline bool leave_queue(rank_state *r, plan_stream stream)
{
  stream_state *s = &r->streams[stream];
  bool begins = s->next == s->oldest && s->begun;
  if (s->next <= s->oldest && !begins) return false;
  wait_until(r, begins ? s->begun_ps : time_of(r, s->oldest)->start_ps, stream);
  s->oldest = r->following[s->oldest];
  return true;
}

/* The op enters the queue, or takes the place of the one that leaves it. */
static inline bool pass_queue(const engine *e, rank_state *r, plan_stream stream, uint32_t index)
{
  stream_state *s = &r->streams[stream];
  int64_t most = e->machine->issue.queue_ops;
  if (s->queued >= most) return most == 0 || leave_queue(r, stream);
  if (s->queued++ == 0) s->oldest = index;
  assert(s->oldest <= index);
  return true;
}

/* Passes the ops that take or give back blocks, half of all, and issues those of streams, up to another one,
 * the next hold or a full queue; false: it passes none. A copy's size is far from its op in memory, so it is
 * prefetched. */
static bool issue_ops(const engine *e, rank_state *r)
{
  const plan_op *ops = r->plan->ops.items;
  op_time *time = time_of(r, r->issued);
  uint32_t i = r->issued, end = r->listed < r->hold_at ? r->listed : r->hold_at, streams = 0;
  int64_t host_ps = r->host_ps, each_ps = e->host.issue_ps[OP_ALLOC];
  assert(each_ps == e->host.issue_ps[OP_FREE] && !r->in_graph);
  for (; i < end; i++, time++) {
    const plan_op *o = &ops[i];
    op_kind kind = (op_kind)o->kind;
    if (kind == OP_ALLOC || kind == OP_FREE) {
      host_ps += each_ps;
      *time = (op_time){ host_ps, host_ps };
      continue;
    }
    r->host_ps = host_ps;
    if (!op_runs_on_stream(kind) || !pass_queue(e, r, (plan_stream)o->stream, i)) break;
    prefetch_ops(r->plan, i);
    int64_t call_ps = op_is_call(kind) ? r->costs[o->arg].host_ps : 0;
    host_ps = r->host_ps + host_issue_ps(&e->host, &r->walk, o, call_ps);
    time->start_ps = host_ps;
    streams |= UINT32_C(1) << o->stream;
    if (op_is_copy(kind)) __builtin_prefetch(copy_host_buffer(r->plan, o));
  }
  bool passed = i > r->issued;
  r->host_ps = host_ps;
  r->issued = i;
  r->to_run |= streams;
  return passed;
}

static void pass_host_op(engine *e, rank_state *r, const plan_op *o)
{
  if (o->stream == STREAM_HOST)
    run_host_op(e, r, o);
  else
    r->to_run |= UINT32_C(1) << o->stream;
  *time_of(r, r->issued) = (op_time){ r->host_ps, r->host_ps };
  r->issued++;
}

/* The next turn comes into the lists (lists.h), and its ops get rows. */
static void list_next(rank_state *r)
{
  if (r->issued != r->listed) return;
  r->listed = list_turns(r->following, r->plan, r->issued, r->issued);
  op_times_reach(&r->out->ops, r->listed, r->plan->ops.count);
}

static bool run_host(engine *e, rank_state *r)
{
  if (r->waits >> STREAM_HOST & 1) return false;
  uint32_t before = r->issued, count = r->plan->ops.count;
  int64_t from_ps = r->host_ps;
  while (r->issued < count) {
    list_next(r);
    const plan_op *o = &r->plan->ops.items[r->issued];
    if (op_is_host_wait((op_kind)o->kind) && !host_wait(e, r, o)) break;
    if (r->issued == r->hold_at && !pass_hold(e, r)) break;
    if (r->in_graph || o->stream == STREAM_HOST)
      pass_host_op(e, r, o);
    else if (!issue_ops(e, r))
      break; /* a queue is full */
  }
  assert(r->host_ps >= from_ps && "time never goes back");
  assert(r->issued <= r->hold_at && "no hold is skipped");
  return r->issued != before;
}

/* ---- streams ----------------------------------------------------------------------------------- */

/* By how much slowdowns lengthen an op that takes `alone_ps` alone. */
static int64_t slowed_by_ps(const rank_state *r, uint32_t index, int64_t alone_ps)
{
  int64_t ppm = r->slowdown == NULL ? 0 : slowdown_ppm(r->slowdown, r->plan, index);
  assert(alone_ps >= 0 && ppm >= 0);
  return ppm == 0 ? 0 : capped_muldiv(alone_ps, ppm, 1000000);
}

/* By how much slowdowns lengthen a copy. Most machines and plans have none; then the copy's time
 * alone is not computed. */
static int64_t copy_slowed_by_ps(const engine *e, const rank_state *r, uint32_t index,
                                 int64_t bytes)
{
  if (r->slowdown == NULL || slowdown_ppm(r->slowdown, r->plan, index) == 0) return 0;
  bool out = r->plan->ops.items[index].kind == OP_D2H;
  assert(out || r->plan->ops.items[index].kind == OP_H2D);
  return slowed_by_ps(r, index, host_copy_ps(e->machine, bytes, out));
}

static void post_copy(engine *e, rank_state *r, plan_stream stream, uint32_t index,
                      int64_t ready_ps)
{
  const plan_op *o = &r->plan->ops.items[index];
  static const lane_kind lanes[OP_KINDS] = { [OP_D2H] = LANE_D2H,
                                             [OP_H2D] = LANE_H2D,
                                             [OP_DISK_WRITE] = LANE_DISK_WRITE,
                                             [OP_DISK_READ] = LANE_DISK_READ };
  const plan_buffer *b = copy_host_buffer(r->plan, o);
  assert(op_is_copy((op_kind)o->kind) && index < r->issued && !r->streams[stream].posted);
  int64_t bytes = copy_bytes(e->plan, r->plan, o), more_ps = copy_slowed_by_ps(e, r, index, bytes);
  r->out->waiting_slows_ps += more_ps;
  links_post(e->links, r->number, lanes[o->kind], (uint32_t)stream,
             &(link_copy){ .ready_ps = ready_ps,
                           .bytes = bytes,
                           .more_ps = more_ps,
                           .pageable = b->purpose == CLASS_PAGEABLE_HOST });
  r->streams[stream].posted = true;
}

static inline void finish_op(rank_state *r, stream_state *s, uint32_t index, int64_t start_ps,
                             int64_t end_ps)
{
  assert(start_ps <= end_ps && s->free_ps <= end_ps && "time never goes back");
  s->next = r->following[index];
  assert(s->next > index && "a stream keeps program order");
  s->free_ps = end_ps;
  *time_of(r, index) = (op_time){ start_ps, end_ps };
}

/* `streams`: that may go on, a bit each. */
static void wake(engine *e, rank_state *r, uint32_t streams)
{
  assert(e->runnable <= e->plan->rank_count);
  e->runnable += !r->runnable;
  r->runnable = true;
  r->to_run |= streams;
}

/* This side of a message is ready; the later side computes the message's end. */
static void come_to_message(engine *e, const rank_state *r, const plan_op *o, int64_t ready_ps)
{
  message_state *m = &e->messages[o->arg];
  const plan_message *what = &e->plan->messages.items[o->arg];
  bool receives = o->kind == OP_RECV;
  assert(r->number == (receives ? what->to_rank : what->from_rank));
  assert(m->ready_ps[receives] == UNKNOWN && m->done_ps == UNKNOWN && "each side gets there once");
  m->ready_ps[receives] = ready_ps;
  if (m->ready_ps[!receives] == UNKNOWN) return;
  m->done_ps = time_after(e, max_i64(m->ready_ps[0], m->ready_ps[1]),
                          message_ps(e->machine, e->places, what));
  assert(m->done_ps >= ready_ps);
  wake(e, &e->ranks[what->from_rank == r->number ? what->to_rank : what->from_rank], ALL_STREAMS);
}

static bool is_message(const rank_state *r, uint32_t op)
{
  if (op == NO_OP) return false;
  assert(op < r->plan->ops.count);
  uint8_t kind = r->plan->ops.items[op].kind;
  return kind == OP_SEND || kind == OP_RECV;
}

/* NO_OP: it is not issued yet. */
static uint32_t last_of_exchange(const rank_state *r, uint32_t op)
{
  assert(is_message(r, op));
  while (op < r->issued && is_message(r, r->following[op]))
    op = r->following[op];
  return op < r->issued ? op : NO_OP;
}

/* Messages that follow each other on a stream are one exchange: they begin together when the last of them
 * is issued, and the stream goes on when all are done. */
static bool run_exchange(engine *e, rank_state *r, stream_state *s)
{
  const plan_op *ops = r->plan->ops.items;
  uint32_t last = last_of_exchange(r, s->next);
  if (last == NO_OP) return false;
  assert(s->next <= last);
  uint32_t end = r->following[last];
  assert(end == NO_OP || end > last);
  int64_t ready_ps = max_i64(s->free_ps, time_of(r, last)->start_ps);
  for (uint32_t k = s->next; k != end && !s->posted; k = r->following[k])
    come_to_message(e, r, &ops[k], ready_ps);
  s->posted = true;
  int64_t done_ps = ready_ps;
  for (uint32_t k = s->next; k != end; k = r->following[k]) {
    if (e->messages[ops[k].arg].done_ps == UNKNOWN) return false;
    done_ps = max_i64(done_ps, e->messages[ops[k].arg].done_ps);
  }
  assert(s->posted && done_ps >= ready_ps);
  s->posted = false;
  while (s->next != end)
    finish_op(r, s, s->next, ready_ps, done_ps);
  return true;
}

/* Accumulators' kernels fill the GPU as compute's do, so both together take the sum of their times (a
 * trace of 204 of them: 739 and 34 ms of kernels in 771 ms). The next kernels of compute are
 * lengthened, unless compute waits. */
static inline int64_t shared_ps(rank_state *r, plan_stream stream, int64_t idle_ps,
                                int64_t alone_ps)
{
  if (stream == STREAM_ACCUMULATE) r->accumulated_ps += alone_ps;
  if (stream != STREAM_COMPUTE || r->accumulated_ps == 0) return 0;
  int64_t more_ps = max_i64(0, r->accumulated_ps - idle_ps);
  r->accumulated_ps = 0;
  return more_ps;
}

/* Runs kernels and collectives up to another op, one that is not issued yet, or one that ends after
 * TIME_LIMIT_PS. What changes with each is kept in registers. */
static void run_kernels(engine *e, rank_state *r, plan_stream stream)
{
  stream_state *s = &r->streams[stream];
  const plan_op *ops = r->plan->ops.items;
  const uint32_t *following = r->following, issued = r->issued;
  int64_t free_ps = s->free_ps, busy_ps = 0;
  uint32_t i = s->next;
  while (i < issued && op_is_call((op_kind)ops[i].kind)) {
    op_time *time = time_of(r, i);
    int64_t alone_ps = r->costs[ops[i].arg].ps, ready_ps = max_i64(free_ps, time->start_ps);
    int64_t taken_ps = alone_ps + slowed_by_ps(r, i, alone_ps) +
                       shared_ps(r, stream, ready_ps - free_ps, alone_ps);
    int64_t done_ps = ready_ps + taken_ps;
    assert(ops[i].stream == stream && taken_ps >= 0 && following[i] > i);
    if (done_ps > TIME_LIMIT_PS) {
      e->too_long = true;
      break;
    }
    if (stream == STREAM_COMPUTE && ready_ps < r->gap_to_ps) take_back_gap(r, ready_ps, done_ps);
    *time = (op_time){ ready_ps, done_ps };
    busy_ps += taken_ps;
    free_ps = done_ps;
    i = following[i];
  }
  if (stream == STREAM_COMPUTE) r->out->compute_busy_ps += busy_ps;
  s->next = i;
  s->free_ps = free_ps;
}

/* One op of a stream; false: it has to wait for something that is not known yet. */
static bool run_op(engine *e, rank_state *r, plan_stream stream, uint32_t index)
{
  stream_state *s = &r->streams[stream];
  const plan_op *o = &r->plan->ops.items[index];
  assert(o->stream == stream && index == s->next && index < r->issued);
  int64_t ready_ps = max_i64(s->free_ps, time_of(r, index)->start_ps);
  switch ((op_kind)o->kind) {
  case OP_KERNEL:
  case OP_COLLECTIVE: run_kernels(e, r, stream); return !e->too_long;
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
    if (!s->posted) post_copy(e, r, stream, index, ready_ps);
    return false;
  case OP_RECORD:
    assert(r->event_ps[o->arg] == UNKNOWN && "an event is recorded once");
    r->event_ps[o->arg] = ready_ps;
    r->event_stream[o->arg] = s->blamed;
    r->to_run |= r->waits & ALL_STREAMS;
    r->waits = 0;
    finish_op(r, s, index, ready_ps, ready_ps);
    return true;
  case OP_WAIT: {
    int64_t at = r->event_ps[o->arg];
    if (at == UNKNOWN) {
      r->waits |= UINT32_C(1) << stream;
      return false;
    }
    if (stream == STREAM_COMPUTE) expose(r, (plan_stream)r->event_stream[o->arg], ready_ps, at);
    s->held_until_ps = max_i64(s->held_until_ps, at);
    finish_op(r, s, index, ready_ps, max_i64(ready_ps, at));
    return true;
  }
  case OP_SEND:
  case OP_RECV: return run_exchange(e, r, s);
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
  case OP_KINDS: break;
  }
  assert(0 && "an op of the host on a stream");
  return false;
}

static void run_stream(engine *e, rank_state *r, plan_stream stream)
{
  stream_state *s = &r->streams[stream];
  while (s->next < r->issued && run_op(e, r, stream, s->next))
    continue;
}

/* Runs each stream that may go on, in the order of plan_stream. */
static void run_streams(engine *e, rank_state *r)
{
  for (uint32_t left = ALL_STREAMS; (r->to_run & left) != 0;) {
    uint32_t stream = (uint32_t)__builtin_ctz(r->to_run & left);
    left = ~UINT32_C(1) << stream;
    r->to_run &= ~(UINT32_C(1) << stream);
    run_stream(e, r, (plan_stream)stream);
  }
}

/* Runs everything of this rank that waits neither for a copy nor for another rank. Once the streams have run,
 * they go on when the host thread has issued more, or a later stream has recorded what an earlier one waits
 * for. */
static void run_rank(engine *e, rank_state *r)
{
  assert(r->runnable && e->runnable > 0);
  e->runnable--;
  r->runnable = false;
  run_host(e, r);
  do
    run_streams(e, r);
  while (!e->too_long && (run_host(e, r) || r->to_run != 0));
}

/* Rank 0 goes on when no other rank can. Then the others are as far as what it has done lets them be, so a
 * steady pipeline looks the same whenever rank 0 begins a turn (skip.h). */
static rank_state *next_rank(const engine *e)
{
  assert(e->runnable > 0);
  for (uint32_t i = 1; i < e->plan->rank_count; i++)
    if (e->ranks[i].runnable) return &e->ranks[i];
  assert(e->ranks[0].runnable);
  return &e->ranks[0];
}

static void run_ranks(engine *e)
{
  while (e->runnable > 0 && !e->too_long) {
    rank_state *r = next_rank(e);
    if (r->number == 0) skip_turns(e);
    run_rank(e, r);
  }
  assert((e->runnable == 0 || e->too_long) && "ranks run until each waits for a copy or a rank");
  skip_turns(e);
}

/* Returns the stream that a wait for such a copy is blamed on. */
static plan_stream count_busy(rank_state *r, op_kind kind, const link_event *done)
{
  int64_t taken_ps = done->end_ps - done->start_ps;
  assert(op_is_copy(kind) && taken_ps >= 0);
  if (kind == OP_D2H) {
    r->out->d2h_busy_ps += taken_ps;
    r->copied_out_ps = done->end_ps;
  } else if (kind == OP_H2D) {
    r->out->h2d_busy_ps += taken_ps;
  }
  return kind == OP_D2H || kind == OP_DISK_WRITE ? STREAM_D2H : STREAM_H2D;
}

static void complete_copy(engine *e, const link_event *done)
{
  rank_state *r = &e->ranks[done->rank];
  stream_state *s = &r->streams[done->stream];
  uint32_t index = s->next;
  assert(s->posted && index < r->issued && "a copy that was posted");
  assert(s->free_ps <= done->start_ps && time_of(r, index)->start_ps <= done->start_ps);
  e->too_long |= done->end_ps > TIME_LIMIT_PS;
  plan_stream direction = count_busy(r, (op_kind)r->plan->ops.items[index].kind, done);
  /* A copy on the compute stream itself blocks compute for its whole time. */
  if (done->stream == STREAM_COMPUTE)
    expose(r, direction, max_i64(s->free_ps, time_of(r, index)->start_ps), done->end_ps);
  else
    s->blamed = (uint8_t)direction;
  s->posted = s->begun = false;
  finish_op(r, s, index, done->start_ps, done->end_ps);
  wake(e, r, UINT32_C(1) << done->stream);
  run_rank(e, r);
}

/* A host thread may wait for this copy to leave its stream's queue. */
static void begin_copy(engine *e, const link_event *begun)
{
  rank_state *r = &e->ranks[begun->rank];
  stream_state *s = &r->streams[begun->stream];
  assert(s->posted && !s->begun && s->next < r->issued);
  s->begun = true;
  s->begun_ps = begun->start_ps;
  if (s->queued < e->machine->issue.queue_ops || s->oldest != s->next) return;
  wake(e, r, 0);
  run_rank(e, r);
}

/* ---- a run ------------------------------------------------------------------------------------- */

static void rank_begin(rank_state *r, const rank_plan *p, const stream_lists *l, rank_timeline *out,
                       arena *a)
{
  assert(p->residents <= p->buffers.count && out->ops.moved.count == 0);
  r->plan = p;
  r->out = out;
  r->following = l->following;
  r->listed = p->repeat.turns > 0 ? p->repeat.first : p->ops.count;
  op_times_reach(&out->ops, r->listed, p->ops.count);
  r->recorded_by = l->recorded_by;
  r->event_ps = ARENA_UNSET_ARRAY(a, int64_t, p->events);
  r->event_stream = ARENA_UNSET_ARRAY(a, uint8_t, p->events);
  for (uint32_t i = 0; i < p->events; i++)
    r->event_ps[i] = UNKNOWN;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    r->streams[s] = (stream_state){ .next = l->first[s], .blamed = (uint8_t)s };
    if (l->first[s] != NO_OP) r->used[r->used_count++] = (uint8_t)s;
  }
}

/* By the end of the first turns of the rank with the fewest, a pipeline is mostly steady. Other ranks have
 * begun theirs before. */
enum { UNSTEADY_TURNS = 16 };

static uint32_t fewest_turns(const plan *p)
{
  uint32_t fewest = UINT32_MAX;
  for (uint32_t i = 0; i < p->rank_count; i++)
    if (p->ranks[i].repeat.turns < fewest) fewest = p->ranks[i].repeat.turns;
  return fewest;
}

/* No room for turns that are likely left out. Each rank has rows of its own: these fit where the phase before
 * has freed memory, one block for all ranks would not. */
static void reserve_rows(timeline *t, const plan *p)
{
  uint32_t turns = fewest_turns(p), left_out = turns > UNSTEADY_TURNS ? turns - UNSTEADY_TURNS : 0;
  for (uint32_t i = 0; i < p->rank_count; i++)
    op_times_reserve(&t->ranks[i].ops, p->ranks[i].ops.count - left_out * p->ranks[i].repeat.ops);
}

/* What the simulations of a plan have in common. */
typedef struct common {
  const hold_list *holds; /* by rank; NULL: none */
  const call_cost *costs; /* by call */
  stream_lists *lists;    /* by rank */
  const int64_t **page_lock_ps;
  uint32_t threads;
} common;

/* Ranks have memory of their own: threads share none. */
typedef struct preparing {
  const plan *plan;
  const machine *machine;
  common *of;
  arena *memory; /* by rank */
} preparing;

static void prepare_rank(void *context, uint32_t i)
{
  const preparing *x = context;
  const rank_plan *p = &x->plan->ranks[i];
  /* A block of an arena is at least as large as all before it, so the largest array comes last. */
  x->of->page_lock_ps[i] = page_lock_costs(p, x->machine, &x->memory[i]);
  x->of->lists[i] = lists_of(p, &x->memory[i]);
}

static common common_of(const plan *p, const machine *m, const hold_list *holds, uint32_t threads,
                        arena *a)
{
  common c = { holds, call_costs(p, m, a), ARENA_ARRAY(a, stream_lists, p->rank_count),
               ARENA_ARRAY(a, const int64_t *, p->rank_count), threads };
  preparing x = { p, m, &c, ARENA_ARRAY(a, arena, p->rank_count) };
  parallel_for(p->rank_count, threads, prepare_rank, &x);
  for (uint32_t i = 0; i < p->rank_count; i++)
    arena_take(a, &x.memory[i]);
  return c;
}

typedef struct slowing {
  const timeline *times;
  const engine *engine;
  slowdown *of;  /* by rank */
  arena *memory; /* by rank */
} slowing;

static rank_times times_of(const slowing *x, uint32_t i)
{
  const rank_state *r = &x->engine->ranks[i];
  assert(r->out->end_of_rank_ps <= x->times->step_ps);
  return (rank_times){ .of = x->engine->plan,
                       .plan = r->plan,
                       .costs = r->costs,
                       .ops = &r->out->ops,
                       .step_ps = x->times->step_ps,
                       .turns = &r->turns };
}

static void slow_rank(void *context, uint32_t i)
{
  const slowing *x = context;
  rank_times u = times_of(x, i);
  u.cut = turn_cut_of(&u);
  x->of[i] = slowdown_at_full_clock(&u, x->engine->machine, &x->memory[i]);
}

/* By rank; NULL: nothing is slowed. */
static slowdown *slowdown_of_ranks(const timeline *t, const engine *e, uint32_t threads, arena *a)
{
  slowing x = { t, e, ARENA_ARRAY(a, slowdown, t->rank_count),
                ARENA_ARRAY(a, arena, t->rank_count) };
  bool slowed = false;
  parallel_for(t->rank_count, threads, slow_rank, &x);
  for (uint32_t i = 0; i < t->rank_count; i++) {
    arena_take(a, &x.memory[i]);
    slowed |= x.of[i].ppm != NULL;
  }
  return slowed ? x.of : NULL;
}

static void follow_rank(void *context, uint32_t i)
{
  const slowing *x = context;
  rank_times u = times_of(x, i);
  if (x->of[i].ppm != NULL) slowdown_follow(&x->of[i], &u, x->engine->machine, &x->memory[i]);
}

static void follow_ranks(const timeline *t, const engine *e, slowdown *of, uint32_t threads,
                         arena *a)
{
  slowing x = { t, e, of, ARENA_ARRAY(a, arena, t->rank_count) };
  parallel_for(t->rank_count, threads, follow_rank, &x);
  for (uint32_t i = 0; i < t->rank_count; i++)
    arena_take(a, &x.memory[i]);
}

/* Resets the figures, which the next simulation adds up op by op, and writes its times to the same rows. */
static void forget_figures(timeline *t)
{
  for (uint32_t i = 0; i < t->rank_count; i++) {
    op_times_forget(&t->ranks[i].ops);
    t->ranks[i] = (rank_timeline){ .ops = t->ranks[i].ops };
  }
}

static bool rank_end(rank_state *r)
{
  int64_t end = r->host_ps;
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    if (r->streams[s].next != NO_OP) return false;
    assert(!r->streams[s].posted && "every posted copy has ended");
    end = max_i64(end, r->streams[s].free_ps);
  }
  const rank_timeline *out = r->out;
  assert(out->exposed_d2h_ps >= 0 && out->exposed_h2d_ps >= 0 && out->comm_wait_ps >= 0 &&
         "no gap is taken back twice");
  assert(out->compute_busy_ps <= end && out->d2h_busy_ps >= 0 && out->h2d_busy_ps >= 0);
  assert(r->holds_left == 0 || r->issued < r->plan->ops.count);
  r->out->end_of_rank_ps = end;
  return r->issued == r->plan->ops.count;
}

static bool report_too_long(diag *d)
{
  return diag_error(d, (source_pos){ 0 }, "the plan takes longer than %d days on this machine",
                    (int)(TIME_LIMIT_PS / PS_PER_S / (24 * 3600)));
}

static bool report_deadlock(const engine *e, diag *d)
{
  for (uint32_t i = 0; i < e->plan->rank_count; i++)
    for (int s = 0; s < DEVICE_STREAMS; s++) {
      uint32_t op = e->ranks[i].streams[s].next;
      assert(op == NO_OP || e->ranks[i].plan->ops.items[op].stream == s);
      if (op != NO_OP)
        return diag_error(d, (source_pos){ 0 },
                          "the plan deadlocks: rank %u, stream %s never gets past op %u (%s)", i,
                          plan_stream_name(e->plan, (plan_stream)s), op,
                          op_name((op_kind)e->plan->ranks[i].ops.items[op].kind));
    }
  return diag_error(d, (source_pos){ 0 }, "the plan deadlocks: a host thread waits forever");
}

static engine engine_new(timeline *t, const plan *p, const machine *m, const rank_place *places,
                         const common *c, arena *a)
{
  engine e = { .plan = p, .machine = m, .places = places, .threads = c->threads };
  e.host = host_costs_of(m);
  e.links = links_new(m, places, p->rank_count, a);
  e.messages = ARENA_UNSET_ARRAY(a, message_state, p->messages.count);
  for (uint32_t i = 0; i < p->messages.count; i++)
    e.messages[i] = (message_state){ { UNKNOWN, UNKNOWN }, UNKNOWN };
  e.ranks = ARENA_ARRAY(a, rank_state, p->rank_count);
  for (uint32_t i = 0; i < p->rank_count; i++) {
    rank_begin(&e.ranks[i], &p->ranks[i], &c->lists[i], &t->ranks[i], a);
    e.ranks[i].walk = host_walk_of(p, i);
    e.ranks[i].number = i;
    if (c->holds != NULL)
      next_hold(&e.ranks[i], c->holds[i].items, c->holds[i].count);
    else
      next_hold(&e.ranks[i], NULL, 0);
    wake(&e, &e.ranks[i], 0);
    e.ranks[i].costs = c->costs;
    e.ranks[i].page_lock_ps = c->page_lock_ps[i];
  }
  assert(e.runnable == p->rank_count);
  e.skip = turn_skip_new(&e, a);
  return e;
}

bool simulate(timeline *t, const plan *p, const machine *m, const rank_place *places, diag *d)
{
  return simulate_held(t, p, m, places, NULL, 1, d);
}

static bool run(timeline *t, engine *e, diag *d)
{
  link_event event;
  bool complete = true;
  run_ranks(e);
  while (!e->too_long && links_next(e->links, &event)) {
    if (event.ended)
      complete_copy(e, &event);
    else
      begin_copy(e, &event);
    run_ranks(e);
  }
  t->turns_left_out = turns_left_out(e->skip);
  turn_skip_release(e->skip, t->rank_count);
  e->skip = NULL;
  if (e->too_long) return report_too_long(d);
  assert(e->runnable == 0 && "every rank waits or has ended");
  t->step_ps = 0;
  for (uint32_t i = 0; i < t->rank_count; i++) {
    complete = rank_end(&e->ranks[i]) && complete;
    t->step_ps = max_i64(t->step_ps, t->ranks[i].end_of_rank_ps);
  }
  if (!complete) report_deadlock(e, d);
  return complete;
}

/* Parts per million of the step during which a rank computes. */
static int64_t busy_ppm(const timeline *t, uint32_t rank)
{
  return t->step_ps == 0 ? 0 : muldiv_i64(t->ranks[rank].compute_busy_ps, 1000000, t->step_ps);
}

static void note_busy(const timeline *t, int64_t *busy)
{
  for (uint32_t i = 0; i < t->rank_count; i++)
    busy[i] = busy_ppm(t, i);
}

static bool is_busier(const timeline *t, const int64_t *before)
{
  for (uint32_t i = 0; i < t->rank_count; i++)
    if (busy_ppm(t, i) > before[i] + ENGINE_BUSIER_PPM) return true;
  return false;
}

/* `a`: the memory of the run before, which it takes. */
static bool run_slowed(timeline *t, engine *e, const slowdown *of, const common *c, arena *a,
                       diag *d)
{
  forget_figures(t);
  arena_release(a);
  *e = engine_new(t, e->plan, e->machine, e->places, c, a);
  for (uint32_t i = 0; i < t->rank_count; i++)
    e->ranks[i].slowdown = of[i].ppm == NULL ? NULL : &of[i];
  return run(t, e, d);
}

bool simulate_held(timeline *t, const plan *p, const machine *m, const rank_place *places,
                   const hold_list *holds, uint32_t threads, diag *d)
{
  *t = (timeline){ .rank_count = p->rank_count };
  if (!sizes_are_countable(p, d)) return false;
  t->ranks = memory_zeroed(p->rank_count, sizeof *t->ranks);
  reserve_rows(t, p);
  arena scratch = { 0 }, of_run = { 0 };
  common c = common_of(p, m, holds, threads, &scratch);
  engine e = engine_new(t, p, m, places, &c, &of_run);
  bool complete = run(t, &e, d);
  slowdown *of = complete ? slowdown_of_ranks(t, &e, threads, &scratch) : NULL;
  int64_t *busy = ARENA_ARRAY(&scratch, int64_t, p->rank_count);
  for (int follows = 0; complete && of != NULL && follows <= MOST_FOLLOWS; follows++) {
    if (follows > 0) {
      if (!is_busier(t, busy)) break;
      follow_ranks(t, &e, of, threads, &scratch);
    }
    note_busy(t, busy);
    complete = run_slowed(t, &e, of, &c, &of_run, d);
  }
  arena_release(&of_run);
  arena_release(&scratch);
  return complete;
}

void timeline_release(timeline *t)
{
  for (uint32_t i = 0; i < t->rank_count; i++)
    op_times_release(&t->ranks[i].ops);
  memory_return(t->ranks);
  *t = (timeline){ 0 };
}
