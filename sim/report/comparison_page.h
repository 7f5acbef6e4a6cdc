/*
 * One page for a browser, which needs nothing else (docs/reference/html.md): two records, or a
 * prediction and a real run, with both timelines above each other, memory, the largest differences
 * and the gates.
 */
#ifndef OFFSIM_SIM_REPORT_COMPARISON_PAGE_H
#define OFFSIM_SIM_REPORT_COMPARISON_PAGE_H

#include "sim/report/real_comparison.h"
#include "sim/report/traces.h"

/* What traces_table and traces_json take; `timed` NULL: neither side is a prediction of the other. */
typedef struct compared_traces {
  const trace_comparison *c;
  const trace_names *names;
  bool outputs_only, same;
  const timings *timed;
  const gate_list *gates;
} compared_traces;

void traces_html(const compared_traces *t, FILE *out, arena *a);

void real_comparison_html(const real_comparison *c, const gate_list *g, FILE *out, arena *a);

#endif
