/* The host thread of a rank: it issues the plan's ops one after the other. */
#include <assert.h>
#include <time.h>

#include "cuda/device/clock.h"
#include "cuda/exec/state.h"
#include "cuda/measure/ranges.h"
#include "sim/base/units.h"

/* ---- the mark `optimizer` ------------------------------------------------------------------- */

static bool is_optimizer(const rank_run *r, const plan_op *o)
{
  assert(o->kind == OP_MARK && o->arg < r->stage->ops_of->marks.count);
  return r->stage->ops_of->marks.items[o->arg].kind == MARK_OPTIMIZER;
}

static void call_before_optimizer(rank_run *r)
{
  cuda_exec *e = r->exec;
  assert(e->hooks.before_optimizer != NULL && !e->optimizer_passed);
  pthread_mutex_lock(&e->hook_lock);
  if (is_going(r)) e->hooks.before_optimizer(e->hooks.context);
  pthread_mutex_unlock(&e->hook_lock);
  rank_ok(r, r->driver->use(r->gpu)); /* the hook may have used other GPUs */
}

/* A barrier of all ranks; one of them calls the hook. */
static void wait_for_optimizer(rank_run *r)
{
  cuda_exec *e = r->exec;
  gpu_stream *compute = r->queue.streams[STREAM_COMPUTE];
  if (e->hooks.before_optimizer == NULL) return;
  graph_launch(&r->queue);
  if (compute != NULL && !rank_ok(r, r->driver->stream_synchronize(compute))) return;
  pthread_mutex_lock(&e->lock);
  assert(e->at_optimizer < e->with_optimizer && !e->optimizer_passed);
  bool is_last = ++e->at_optimizer == e->with_optimizer;
  while (!is_last && !e->optimizer_passed && is_going(r))
    pthread_cond_wait(&e->changed, &e->lock);
  pthread_mutex_unlock(&e->lock);
  if (!is_last) return;
  call_before_optimizer(r);
  pthread_mutex_lock(&e->lock);
  assert(!e->optimizer_passed && e->at_optimizer == e->with_optimizer);
  e->optimizer_passed = true;
  pthread_cond_broadcast(&e->changed);
  pthread_mutex_unlock(&e->lock);
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* Issues any op: without a case here, a new kind of op does not compile. */
static void issue_op(rank_run *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  op_kind kind = (op_kind)o->kind;
  assert(op == r->sink.at && "a failure names the op");
  operand_room room;
  op_call c;
  if (op_works(kind) && !op_call_begin(r, op, &room, &c)) return;
  switch (kind) {
  case OP_ALLOC:
  case OP_HOST_ALLOC: held_alloc(r, o->arg); return;
  case OP_FREE:
  case OP_HOST_FREE: held_free(r, o); return;
  case OP_KERNEL: kernel_issue(r, &c); return;
  case OP_COLLECTIVE: collective_issue(r, &c, op); return;
  case OP_SEND:
  case OP_RECV: message_issue(r, &c, op); return;
  case OP_D2H:
  case OP_H2D: copy_issue(r, &c); return;
  case OP_DISK_WRITE:
  case OP_DISK_READ: file_issue(r, &c); return;
  case OP_RECORD: queue_record(&r->queue, o); return;
  case OP_WAIT: queue_wait(&r->queue, op); return;
  case OP_HOST_WAIT:
  case OP_HOST_READ: queue_host_wait(&r->queue, op); return;
  case OP_GRAPH_BEGIN: capture_region_begin(&r->queue); return;
  case OP_GRAPH_END: capture_region_end(&r->queue); return;
  case OP_HOST_WORK: return; /* a framework's */
  case OP_MARK:
    if (is_optimizer(r, o)) wait_for_optimizer(r);
    return;
  case OP_KINDS: break;
  }
  assert(false && "an op has a kind");
}

/* ---- on streams ------------------------------------------------------------------------------ */

/* For measurement: launches between the two belong to the op. */
static void launches_begin(rank_run *r, uint32_t op)
{
  assert(op == r->sink.at);
  if (r->exec->options.nvtx) {
    arena scratch = { 0 };
    range_begin(stage_op_text(r->stage, op, &scratch));
    arena_release(&scratch);
  }
  if (r->queue.measure != NULL) measure_op_begin(r->queue.measure, r->number, op);
}

static void launches_end(const rank_run *r)
{
  if (r->queue.measure != NULL) measure_op_end(r->queue.measure);
  if (r->exec->options.nvtx) range_end();
}

/*
 * A third of the power is below every GPU's limit. The GPU rests after a few ops, as between two
 * waits for copies, not after each one, because the first kernel after a pause is slower than the
 * next ones. A prime number, so that each step pauses after different ops.
 */
enum { RESTS = 2, BURST_OPS = 17 };

static void burst_count(rank_run *r)
{
  assert(r->burst.ops < BURST_OPS);
  if (r->burst.ops++ == 0) r->burst.begin_ps = clock_now_ps();
}

static void rest(rank_run *r)
{
  assert(r->burst.ops > 0 && "burst_count has begun it");
  if (r->burst.ops < BURST_OPS) return;
  queue_synchronize(&r->queue);
  int64_t pause_ns = RESTS * (clock_now_ps() - r->burst.begin_ps) / PS_PER_NS;
  assert(pause_ns >= 0 && "time never goes back");
  nanosleep(&(struct timespec){ .tv_sec = pause_ns / NS_PER_S, .tv_nsec = pause_ns % NS_PER_S },
            NULL);
  r->burst.ops = 0;
}

static bool rests_around(const cuda_exec *e, const plan_op *o)
{
  assert(e->step != NULL);
  return e->options.rests_from > 0 && e->step->number >= e->options.rests_from &&
         op_works((op_kind)o->kind);
}

void issue_stream_op(void *rank, uint32_t op)
{
  rank_run *r = rank;
  const plan_op *o = stage_op(r->stage, op);
  assert(op_runs_on_stream((op_kind)o->kind) && o->stream < DEVICE_STREAMS);
  bool rests = rests_around(r->exec, o);
  r->sink.at = op;
  if (rests) burst_count(r);
  launches_begin(r, op);
  issue_op(r, op);
  launches_end(r);
  if (rests) rest(r);
  if (is_going(r) && op_works((op_kind)o->kind)) watches_issued(r, op);
}

/* ---- all ops --------------------------------------------------------------------------------- */

static void note_curves(rank_run *r, uint32_t op)
{
  assert(r->device.requested_bytes >= 0);
  r->after_op[op] = r->device.requested_bytes;
  if (r->curves.live == NULL) return;
  r->curves.live[op] = device_live_bytes(&r->device);
  r->curves.reserved[op] = device_reserved_bytes(&r->device);
  r->curves.host[op] = r->host.held_bytes;
}

static void issue(rank_run *r, uint32_t op)
{
  assert(op < r->stage->ops_of->ops.count);
  bool on_stream = op_runs_on_stream((op_kind)stage_op(r->stage, op)->kind);
  watches_before(r, op);
  r->after_op[op] = r->device.requested_bytes; /* for hooks that see the op while it is issued */
  r->sink.at = op;
  if (!on_stream)
    issue_op(r, op);
  else if (graph_admit(&r->queue, op))
    issue_stream_op(r, op);
  note_curves(r, op);
}

void issue_all(rank_run *r)
{
  assert(is_here(r) && r->stage != NULL);
  for (uint32_t op = 0; op < r->stage->ops_of->ops.count && is_going(r); op++)
    issue(r, op);
  graph_launch(&r->queue); /* a capture that a failure left open */
  if (!is_going(r)) exchange_stop(r->exec->exchange);
}
