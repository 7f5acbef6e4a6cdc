/* What a run comes to, for people and for programs (docs/reference/run.md). */
#ifndef OFFSIM_SIM_CLI_RUN_REPORT_H
#define OFFSIM_SIM_CLI_RUN_REPORT_H

#include <stdio.h>

#include "cuda/exec/executor.h"
#include "sim/train/train.h"

/* Orders that were compared with the program's. */
typedef struct run_orders {
  uint64_t asked, run;
  uint64_t seed;       /* of the first that does not agree */
  const char *finding; /* NULL: all agree */
} run_orders;

typedef struct run_report {
  const train_input *input;
  const train_result *result;
  const run_orders *orders; /* NULL: none were asked for */
  const cuda_run *cuda;     /* what was measured on GPUs; NULL: it ran elsewhere */
  bool tensors;             /* fingerprints of each tensor too */
} run_report;

void run_report_table(const run_report *r, FILE *out);
void run_report_json(const run_report *r, FILE *out);

/* All values of the model's tensors, a JSON object on a line for each: weights before the first
 * step
 * ("initial"), gradients of the last step ("gradient") and weights after it ("parameter"). Values
 * are C99's hexadecimal floats, which are exact. */
void run_report_dump(const train_model *before, const train_model *last, FILE *out);

#endif
