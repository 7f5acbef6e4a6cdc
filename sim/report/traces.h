/*
 * A comparison of two traces, for people and for programs (docs/reference/json.md).
 */
#ifndef OFFSIM_SIM_REPORT_TRACES_H
#define OFFSIM_SIM_REPORT_TRACES_H

#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/report/timing_report.h"
#include "traces/compare.h"

/* The files that were compared, as they were named. */
typedef struct trace_names {
  const char *a, *b;
} trace_names;

/* `outputs_only`: order and memory are not judged. */
void traces_table(const trace_comparison *c, const trace_names *names, bool outputs_only, FILE *out,
                  arena *a);
/* `timed`: a prediction beside a measurement, NULL: they are no such two. */
void traces_json(const trace_comparison *c, const trace_names *names, bool same,
                 const timing_report *timed, FILE *out);

#endif
