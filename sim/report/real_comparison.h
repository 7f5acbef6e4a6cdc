/*
 * A prediction beside a real run: for people, for programs (docs/reference/real-runs.md), for CI.
 */
#ifndef OFFSIM_SIM_REPORT_REAL_COMPARISON_H
#define OFFSIM_SIM_REPORT_REAL_COMPARISON_H

#include <stdio.h>

#include "traces/import/real_comparison.h"

/* A condition that was asked for, and what came of it. */
typedef struct real_gate {
  const char *name;    /* "max-peak-error" */
  const char *finding; /* "the error of the peak is 0.14 %, at most 1.00 %" */
  bool held;
} real_gate;

void real_comparison_table(const real_comparison *c, FILE *out, arena *a);
void real_comparison_json(const real_comparison *c, const real_gate *gates, uint32_t gate_count,
                          FILE *out);
/* Both timelines above each other, and memory; by the file's name an .svg, .png or .pdf. False after a diag
 * error. */
bool real_comparison_plot(const real_comparison *c, const char *path, arena *a, diag *d);
/* JUnit's XML: a test case for each gate. */
void real_gates_junit(const real_gate *gates, uint32_t gate_count, FILE *out);

#endif
