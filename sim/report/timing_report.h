/*
 * A prediction held against a measurement, for people, for programs (docs/reference/json.md) and as
 * a picture.
 */
#ifndef OFFSIM_SIM_REPORT_TIMING_REPORT_H
#define OFFSIM_SIM_REPORT_TIMING_REPORT_H

#include <stdio.h>

#include "sim/base/diag.h"
#include "traces/timing.h"

typedef struct timing_report {
  timing with;
  const timing *without; /* the same without offload; NULL: not given */
} timing_report;

/* Savings of one rank, bytes; R is measured over simulated. -1: not known. */
typedef struct saving_figures {
  int64_t theoretical, simulated, measured;
} saving_figures;

/* What is compared: what the host holds, which is what frameworks count as allocated, or what is
 * live on the device, blocks that a stream still uses included. */
typedef enum saved_memory { SAVED_ALLOCATED, SAVED_LIVE, SAVED_MEMORIES } saved_memory;

/* False: nothing to tell without a run without offload. */
bool timing_saving(const timing_report *r, uint32_t rank, saved_memory of, saving_figures *s);

/* Figures of a rank, predicted: of its stage. */
const trace_figures *timing_figures(const timing *t, timing_side side, uint32_t rank);

/* Step times over those without offload, less 1, in parts per million. */
int64_t timing_overhead_ppm(const timing_report *r, timing_side side);

void timing_table(const timing_report *r, FILE *out, arena *a);
/* Members of an object, each with a comma behind it. */
void timing_json(const timing_report *r, FILE *out);
/* Predicted and measured streams of a rank above each other. */
bool timing_plot(const timing *t, uint32_t rank, const char *path, arena *a, diag *d);

#endif
