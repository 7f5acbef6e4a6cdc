/*
 * calibrate --from: a machine from a trace of a run and its configuration (sim/fit/fit.h).
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_TRACE_H
#define OFFSIM_SIM_CLI_CALIBRATE_TRACE_H

#include "sim/load/load.h"

typedef struct trace_options {
  const char *from; /* the trace */
  const char *output, *name;
  double step_time; /* seconds, without the profiler; 0: not given */
  int64_t rank;     /* of pipeline ranks; -1: the trace's */
} trace_options;

bool calibrate_from_trace(const trace_options *o, const load_options *load, arena *a, diag *d);

#endif
