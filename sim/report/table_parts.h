/*
 * The parts of a prediction's table that are no columns. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_TABLE_PARTS_H
#define OFFSIM_SIM_REPORT_TABLE_PARTS_H

#include "sim/report/figures.h"
#include "sim/report/table.h"

typedef struct view {
  const prediction *p;
  FILE *out;
  arena *memory;
  figure_unit bytes, time; /* of the whole table */
  bool offloads;           /* something goes to the host */
} view;

void print_head(const view *v);    /* model, training, parallel, machine, offload */
void print_peaks(const view *v);   /* what lives at each rank's peak */
void print_savings(const view *v); /* where simulated and theoretical saving differ, and why */
void print_defects(const view *v); /* of released code */
void print_verdict(const view *v); /* step time, overhead, bottleneck, fit */
void print_measured(const view *v, const measured_bytes *measured);

#endif
