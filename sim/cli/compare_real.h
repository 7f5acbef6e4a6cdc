/*
 * offsim compare of a prediction and a real run.
 */
#ifndef OFFSIM_SIM_CLI_COMPARE_REAL_H
#define OFFSIM_SIM_CLI_COMPARE_REAL_H

#include "sim/load/load.h"
#include "traces/import/real_run.h"

typedef struct real_options {
  bool json, same_copies, all_waits;
  const char *junit, *plot, *html;                  /* NULL: not given */
  int64_t rank;                                     /* -1: as the run says */
  int64_t without_peak_bytes;                       /* -1: not given */
  double step_time;                                 /* seconds; 0: not given */
  double max_peak_error, max_step_error, min_ratio; /* percent; -1: not given */
} real_options;

/* `record`: of a prediction; NULL: predicts the configuration of `load`. Clears *held if a gate
 * fails. False after a diag error. */
bool compare_with_real(const real_options *o, const char *record, const load_options *load,
                       char **files, int count, bool *held, arena *a, diag *d);

/* The pipeline rank of a run: the one asked for (-1: none), or its own. Megatron-LM numbers a stage's ranks
 * consecutively. False after a diag error: there is no such rank. */
bool real_rank(int64_t asked, int64_t ranks, const real_run *r, uint32_t *rank, diag *d);

#endif
