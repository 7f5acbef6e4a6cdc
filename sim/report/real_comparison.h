/*
 * A prediction beside a real run: for people, for programs (docs/reference/real-runs.md).
 */
#ifndef OFFSIM_SIM_REPORT_REAL_COMPARISON_H
#define OFFSIM_SIM_REPORT_REAL_COMPARISON_H

#include <stdio.h>

#include "sim/report/gates.h"
#include "traces/import/real_comparison.h"

void real_comparison_table(const real_comparison *c, FILE *out, arena *a);
void real_comparison_json(const real_comparison *c, const gate_list *g, FILE *out);
/* Both timelines above each other, and memory; by the file's name an .svg, .png or .pdf. False after a diag
 * error. */
bool real_comparison_plot(const real_comparison *c, const char *path, arena *a, diag *d);

#endif
