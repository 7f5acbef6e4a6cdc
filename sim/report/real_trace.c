#include "sim/report/real_trace.h"

#include "sim/base/units.h"

/* NULL: it has no lane. One stream for both directions has one, as in a plan. */
static const char *lane_of(const run_summary *s, const real_span *w)
{
  static const char *const lanes[STREAM_ROLES] = { [ROLE_COMPUTE] = "compute",
                                                   [ROLE_COMMUNICATION] = "comm",
                                                   [ROLE_D2H] = "d2h",
                                                   [ROLE_H2D] = "h2d" };
  if (w->track == s->offload_stream && w->kind == REAL_D2H) return "d2h";
  if (w->track == s->reload_stream && w->kind == REAL_H2D)
    return s->reload_stream == s->offload_stream ? "d2h" : "h2d";
  return lanes[s->streams[w->track].role];
}

static const char *kind_of(const real_span *w)
{
  return w->kind == REAL_D2H                               ? "d2h"
         : w->kind == REAL_H2D                             ? "h2d"
         : kernel_class_of(w->name) == CLASS_COMMUNICATION ? "collective"
                                                           : "kernel";
}

static const char *phase_of(const real_run *r, const real_span *w)
{
  return w->pass == REAL_NONE ? "forward" : real_pass_name(r->passes.items[w->pass].kind);
}

/* Memory at the time at which the work begins: the host may be ahead of it. */
static trace_op op_of(const measured_run *m, uint32_t rank, const real_span *w, const char *lane)
{
  return (trace_op){ .rank = rank,
                     .kind = kind_of(w),
                     .name = w->name,
                     .call = "",
                     .stream = lane,
                     .layer = -1,
                     .module = "",
                     .phase = phase_of(m->run, w),
                     .begin_ps = (w->begin_ns - m->summary->begin_ns) * PS_PER_NS,
                     .end_ps = (w->end_ns - m->summary->begin_ns) * PS_PER_NS,
                     .requested_bytes =
                         m->memory == NULL ? 0 : run_memory_at(m->memory, w->begin_ns) };
}

trace real_trace_of(const real_comparison *c)
{
  const measured_run *m = &c->measured;
  trace t = { .header = { .source = "cuda",
                          .scenario = m->run->sources,
                          .ranks = c->predicted.record->header.ranks,
                          .steps = 1 } };
  for (uint32_t i = 0; i < m->run->spans.count; i++) {
    const real_span *w = &m->run->spans.items[i];
    const char *lane = real_span_is_work((real_span_kind)w->kind) ? lane_of(m->summary, w) : NULL;
    if (lane != NULL) *ARRAY_PUSH(&t.ops) = op_of(m, c->predicted.rank, w, lane);
  }
  return t;
}
