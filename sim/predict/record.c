#include <assert.h>

#include "sim/predict/prediction.h"
#include "sim/predict/requested.h"
#include "traces/recorder.h"

/* What an op adds to the page-locked host memory that buffers hold. */
static int64_t host_change_of(const rank_plan *r, const plan_op *o)
{
  if (o->kind != OP_HOST_ALLOC && o->kind != OP_HOST_FREE) return 0;
  const plan_buffer *b = &r->buffers.items[o->arg];
  if (b->purpose != CLASS_PINNED_HOST) return 0;
  return o->kind == OP_HOST_ALLOC ? b->bytes : -b->bytes;
}

static void record_rank(trace_recorder *to, const prediction *p, uint32_t rank)
{
  const rank_plan *r = &p->steady.plan.ranks[rank];
  const rank_timeline *times = &p->steady_timeline.ranks[rank];
  int64_t bytes = requested_before_bytes(r), host = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    bytes += requested_change_bytes(r, &r->ops.items[i]);
    host += host_change_of(r, &r->ops.items[i]);
    assert(op_start_ps(times, i) <= op_end_ps(times, i));
    trace_op known = { .rank = rank,
                       .begin_ps = op_start_ps(times, i),
                       .end_ps = op_end_ps(times, i),
                       .requested_bytes = bytes,
                       .live_bytes = p->curves[rank].live_bytes[i],
                       .reserved_bytes = p->curves[rank].reserved_bytes[i],
                       .host_bytes = host };
    recorder_op(to, rank, i, &known, NULL);
  }
}

static trace_figures figures_of(const rank_prediction *r)
{
  trace_figures f = trace_no_figures();
  f.requested_peak_bytes = r->requested_peak_bytes;
  f.allocated_peak_bytes = r->steady_allocated_peak_bytes;
  f.live_peak_bytes = r->live_peak_bytes;
  f.reserved_peak_bytes = r->reserved_peak_bytes;
  f.pinned_peak_bytes = r->host_pinned_pow2_bytes;
  f.exposed_d2h_ps = r->exposed_d2h_ps;
  f.exposed_h2d_ps = r->exposed_h2d_ps;
  f.theoretical_saving_bytes = r->theoretical_saving_bytes;
  return f;
}

static void record_all(trace_recorder *to, const prediction *p)
{
  recorder_plan(to, &p->steady.plan);
  for (uint32_t r = 0; r < p->rank_count; r++)
    record_rank(to, p, r);
  trace_put_steps(&to->writer, &p->result.step_ps, 1);
  for (uint32_t r = 0; r < p->rank_count; r++) {
    trace_figures f = figures_of(&p->result.ranks[r]);
    trace_put_figures(&to->writer, r, &f);
  }
}

static trace_header header_of(const prediction *p, const char *scenario)
{
  assert(p->curves != NULL);
  return (
      trace_header){ .source = "sim", .scenario = scenario, .ranks = p->rank_count, .steps = 1 };
}

bool prediction_record(const prediction *p, const char *scenario, const char *path, diag *d)
{
  trace_recorder to;
  trace_header h = header_of(p, scenario);
  if (!recorder_open(&to, path, &h, d)) return false;
  record_all(&to, p);
  return recorder_close(&to, d);
}

void prediction_record_to(const prediction *p, const char *scenario, FILE *stream)
{
  trace_recorder to;
  trace_header h = header_of(p, scenario);
  recorder_begin(&to, stream, &h);
  record_all(&to, p);
  recorder_end(&to);
}
