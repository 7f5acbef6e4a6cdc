/* The host thread of a rank: it issues the plan's ops one after the other. */
#include <time.h>

#include "cuda/device/clock.h"
#include "cuda/exec/state.h"
#include "cuda/measure/ranges.h"
#include "sim/base/units.h"

/* ---- streams --------------------------------------------------------------------------------- */

static void record(rank_run *r, const plan_op *o)
{
  rank_ok(r, r->driver->event_record(r->events.items[o->arg], r->streams[o->stream]));
}

static void wait(rank_run *r, const plan_op *o, uint32_t op)
{
  if (!waits_for_nothing(r->stage, op))
    rank_ok(r, r->driver->stream_wait(r->streams[o->stream], r->events.items[o->arg]));
}

/* For whoever measures: between the two, what is launched belongs to the op. */
static void launches_begin(rank_run *r, uint32_t op)
{
  const cuda_exec *e = r->exec;
  if (e->options.nvtx) {
    arena scratch = { 0 };
    range_begin(stage_op_text(r->stage, op, &scratch));
    arena_release(&scratch);
  }
  if (e->measuring) measure_op_begin(e->measure, r->number, op);
}

static void launches_end(const rank_run *r)
{
  const cuda_exec *e = r->exec;
  if (e->measuring) measure_op_end(e->measure);
  if (e->options.nvtx) range_end();
}

/*
 * A third of the power is less than any GPU may draw. It rests behind a few ops, as between two
 * waits for copies, not behind each: the first kernel after a pause is slower than the next ones. A
 * prime number, so that in each step it is another op.
 */
enum { RESTS = 2, BURST_OPS = 17 };

static void burst_count(rank_run *r)
{
  if (r->burst.ops++ == 0) r->burst.begin_ps = clock_now_ps();
}

static void rest(rank_run *r)
{
  if (r->burst.ops < BURST_OPS) return;
  streams_synchronize(r);
  int64_t pause_ns = RESTS * (clock_now_ps() - r->burst.begin_ps) / PS_PER_NS;
  nanosleep(&(struct timespec){ .tv_sec = pause_ns / NS_PER_S, .tv_nsec = pause_ns % NS_PER_S },
            NULL);
  r->burst.ops = 0;
}

static bool rests_around(const cuda_exec *e, const plan_op *o)
{
  return e->options.rests_from > 0 && e->step->number >= e->options.rests_from &&
         op_works((op_kind)o->kind);
}

void issue_stream_op(rank_run *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  bool rests = rests_around(r->exec, o);
  r->at = op;
  if (rests) burst_count(r);
  launches_begin(r, op);
  if (o->kind == OP_RECORD)
    record(r, o);
  else if (o->kind == OP_WAIT)
    wait(r, o, op);
  else
    work_issue(r, op);
  launches_end(r);
  if (rests) rest(r);
  if (is_going(r) && op_works((op_kind)o->kind)) watches_issued(r, op);
}

/* ---- the host itself ------------------------------------------------------------------------- */

static void host_wait(rank_run *r, const plan_op *o, uint32_t op)
{
  if (!waits_for_nothing(r->stage, op))
    rank_ok(r, r->driver->event_synchronize(r->events.items[o->arg]));
}

static bool is_optimizer(const rank_run *r, const plan_op *o)
{
  return o->kind == OP_MARK && r->stage->ops_of->marks.items[o->arg].kind == MARK_OPTIMIZER;
}

static void issue_host_op(rank_run *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  r->at = op;
  if (is_optimizer(r, o)) wait_for_optimizer(r);
  if (o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) held_alloc(r, o->arg);
  if (o->kind == OP_FREE || o->kind == OP_HOST_FREE) held_free(r, op);
  if (o->kind == OP_HOST_WAIT) host_wait(r, o, op);
  if (o->kind == OP_GRAPH_BEGIN) capture_region_begin(r);
  if (o->kind == OP_GRAPH_END) capture_region_end(r);
}

static void note_curves(rank_run *r, uint32_t op)
{
  r->after_op[op] = r->requested_bytes;
  if (r->curves.live == NULL) return;
  r->curves.live[op] = device_live_bytes(r);
  r->curves.reserved[op] = device_reserved_bytes(r);
  r->curves.host[op] = r->held_host_bytes;
}

static void issue(rank_run *r, uint32_t op)
{
  bool on_stream = op_runs_on_stream((op_kind)stage_op(r->stage, op)->kind);
  watches_before(r, op);
  r->after_op[op] = r->requested_bytes; /* for whoever is told of the op while it is issued */
  if (!on_stream)
    issue_host_op(r, op);
  else if (graph_admit(r, op))
    issue_stream_op(r, op);
  note_curves(r, op);
}

void issue_all(rank_run *r)
{
  for (uint32_t op = 0; op < r->stage->ops_of->ops.count && is_going(r); op++)
    issue(r, op);
  graph_launch(r); /* a capture that a failure has left open */
  if (!is_going(r)) exchange_stop(r->exec->exchange);
}
