/* Training steps of a scenario, and what is told of them. */
#ifndef OFFSIM_SIM_CLI_RUN_SCENARIO_H
#define OFFSIM_SIM_CLI_RUN_SCENARIO_H

#include "sim/cli/load.h"
#include "sim/train/train.h"

typedef struct run_options {
  load_options load;
  bool help, json, tensors, same_batch, without_offload;
  bool timed, contents, guards, nvtx; /* cuda */
  const char *executor, *plan, *data, *dump, *trace, *disk_dir;
  const char *arithmetic, *backing; /* cuda; NULL: fast, caching */
  int64_t steps, threads;
  int64_t gpus; /* cuda; -1: as many as there are */
  double learning_rate;
  uint64_t seed;
  exec_order order;
  uint64_t interleavings;
} run_options;

/* False after a diag error. *right: nothing was found to be wrong. */
bool run_scenario(const run_options *o, bool *right, arena *a, diag *d);

#endif
