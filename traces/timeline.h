/*
 * A step of a rank's plan as a trace in the form of PyTorch's profiler, of a prediction and of a run alike:
 * Perfetto, HTA and offsim import read it. docs/reference/traces.md has the form.
 *
 *     timeline_file t;
 *     timeline_begin(&t, stream, plan, 0, 1, a);
 *     timeline_put(&t, &rank);
 *     timeline_end(&t);
 *
 * A rank is a process, numbered from 1; in it the host's phases and calls are the first track, and each
 * stream has one. An arrow leads from each copy to the host to the copy that brings the same buffer
 * back.
 */
#ifndef OFFSIM_TRACES_TIMELINE_H
#define OFFSIM_TRACES_TIMELINE_H

#include "sim/base/arena.h"
#include "sim/plan/plan.h"
#include "traces/chrome.h"

/* From one mark to the next. */
typedef struct timeline_phase {
  const plan_mark *mark;
  int64_t begin_ps, end_ps;
} timeline_phase;

typedef struct timeline_point {
  int64_t at_ps, bytes; /* from here to the next point */
} timeline_point;

typedef struct timeline_curve {
  const char *name; /* "live bytes" */
  const timeline_point *points;
  uint32_t count;
} timeline_curve;

typedef struct timeline_rank {
  uint32_t number;  /* as it is shown */
  const char *name; /* "pipeline rank 0" */
  const rank_plan *ops;
  const int64_t *start_ps, *end_ps; /* by op; start -1: it has no times */
  const int64_t *issued_ps,
      *waited_ps; /* by op: when the host issued it, how long it waited before;
                                         * NULL: unknown */
  int64_t step_ps;
  const timeline_phase *phases;
  uint32_t phase_count;
  const timeline_curve *curves;
  uint32_t curve_count;
} timeline_rank;

typedef struct timeline_file {
  chrome_trace chrome;
  const plan *plan;
  const char **shapes;        /* by call: "m 4096 n 7168 k 2048 batch 1, bf16" */
  const char *waits[STREAMS]; /* "wait for d2h" */
} timeline_file;

/* `rank` of `world_size`: what analysers of several traces go by. Memory is from the arena. */
void timeline_begin(timeline_file *t, FILE *out, const plan *p, uint32_t rank, uint32_t world_size,
                    arena *a);
void timeline_put(timeline_file *t, const timeline_rank *r);
void timeline_end(timeline_file *t);

#endif
