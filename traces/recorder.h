/*
 * Records the ops of a plan that ran: the simulator and the executors pass them to this recorder,
 * which adds what the plan says about an op and writes it (record.h).
 *
 *     trace_recorder r;
 *     if (!recorder_open(&r, path, &header, d)) return false;
 *     recorder_plan(&r, plan);
 *     recorder_op(&r, rank, op, &known, NULL);    // for each op that was run
 *     trace_put_steps(&r.writer, ...);
 *     return recorder_close(&r, d);
 */
#ifndef OFFSIM_TRACES_RECORDER_H
#define OFFSIM_TRACES_RECORDER_H

#include "sim/plan/plan.h"
#include "traces/record.h"

typedef struct trace_recorder {
  trace_writer writer;
  const plan *plan;   /* the plan whose ops are being recorded */
  const char **calls; /* by call of the plan: its text, NULL: not needed so far */
  uint32_t **marks;   /* by rank and op of the plan: the phase in which it was issued */
  arena memory;
} trace_recorder;

/* The file appears when the recorder is closed. Both are false after a diag error: it cannot be written. */
bool recorder_open(trace_recorder *r, const char *path, const trace_header *h, diag *d);
bool recorder_close(trace_recorder *r, diag *d);
/* The same into an open stream, which the caller closes. */
void recorder_begin(trace_recorder *r, FILE *stream, const trace_header *h);
void recorder_end(trace_recorder *r);
void recorder_discard(trace_recorder *r);

/* The ops that follow are this plan's. */
void recorder_plan(trace_recorder *r, const plan *p);

/* Records op `op` of the plan's rank `pp_rank`, if it moves or computes data. `known`: step, global
 * rank, times and bytes. `outputs`: contents of all its writes, whose names are filled in here;
 * NULL: unknown. */
void recorder_op(trace_recorder *r, uint32_t pp_rank, uint32_t op, const trace_op *known,
                 trace_output *outputs);

/* Whether traces contain the op. */
bool recorder_takes(const plan_op *o);

#endif
