/* The figures of a run, for people and for programs (docs/reference/run.md). */
#ifndef OFFSIM_SIM_REPORT_RUN_H
#define OFFSIM_SIM_REPORT_RUN_H

#include <stdio.h>

#include "sim/train/orders.h"

/* What was measured of a rank on a GPU: bytes at their peaks. */
typedef struct gpu_memory {
  int64_t requested, live, reserved, pinned;
  int64_t driver_used, outside; /* of the whole GPU; beside the allocator */
  int64_t broken_guards;
} gpu_memory;

typedef struct gpu_report {
  uint32_t gpus;           /* 0: the CPU */
  const int64_t *steps_ps; /* [steps of the run] */
  uint32_t steps;
  int64_t tokens;          /* in a step, of all GPUs */
  const gpu_memory *ranks; /* [ranks of the run] */
} gpu_report;

typedef struct run_report {
  const train_result *result;
  const int64_t *planned_peak_bytes; /* by rank: of the plans that were run */
  const train_orders *orders;        /* NULL: none were asked for */
  const gpu_report *gpus;            /* NULL: it ran elsewhere */
  bool tensors;                      /* fingerprints of each tensor too */
} run_report;

void run_report_table(const run_report *r, FILE *out);
void run_report_json(const run_report *r, FILE *out);

/* All values of the model's tensors, a JSON object on a line for each: weights before the first
 * step
 * ("initial"), gradients of the last step ("gradient") and weights after it ("parameter"). Values
 * are C99's hexadecimal floats, which are exact. */
void run_report_dump(const train_model *before, const train_model *last, FILE *out);

#endif
