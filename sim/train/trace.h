/*
 * A training run as a trace (traces/record.h): a line for each op when it is over, with a
 * fingerprint of each buffer that it has written: XXH3 with 128 bits of the elements that it sees,
 * in row-major order; of a copy or message, of the bytes that are moved. What lies in a file is not
 * known, nor what a kernel leaves in a workspace.
 */
#ifndef OFFSIM_SIM_TRAIN_TRACE_H
#define OFFSIM_SIM_TRAIN_TRACE_H

#include "sim/exec/executor.h"
#include "traces/record_plan.h"

typedef struct run_trace {
  trace_writer writer;
  const plan *plan; /* whose ops are told now */
  plan_describer describer;
  arena memory;
} run_trace;

bool run_trace_open(run_trace *t, const char *path, const trace_header *h, diag *d);
/* The ops that follow are this plan's. */
void run_trace_plan(run_trace *t, const plan *p);
void run_trace_op(run_trace *t, const execution *e, uint32_t step, const exec_rank *rank,
                  uint32_t op);
bool run_trace_close(run_trace *t, diag *d);
void run_trace_discard(run_trace *t);

#endif
