/*
 * Two traces side by side, for people and for programs (docs/reference/json.md): what they issue,
 * hold and write; a prediction beside a measurement.
 */
#ifndef OFFSIM_SIM_REPORT_TRACES_H
#define OFFSIM_SIM_REPORT_TRACES_H

#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/report/gates.h"
#include "traces/compare.h"
#include "traces/timing.h"

/* The files that were compared, as they were named. */
typedef struct trace_names {
  const char *a, *b;
} trace_names;

/* `outputs_only`: order and memory are not judged. */
void traces_table(const trace_comparison *c, const trace_names *names, bool outputs_only, FILE *out,
                  arena *a);
/* `timed`: a prediction beside a measurement, NULL: they are no such two. */
void traces_json(const trace_comparison *c, const trace_names *names, bool same,
                 const timings *timed, const gate_list *g, FILE *out);

/* A prediction beside a measurement. */
void timing_table(const timings *r, FILE *out, arena *a);
/* Members of an object, a comma after each. */
void timing_json(const timings *r, FILE *out);

#endif
