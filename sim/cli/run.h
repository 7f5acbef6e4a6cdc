/* The options of `offsim run`, and training steps of a scenario. */
#ifndef OFFSIM_SIM_CLI_RUN_H
#define OFFSIM_SIM_CLI_RUN_H

#include "sim/load/load.h"
#include "sim/train/train.h"

typedef enum run_arithmetic { ARITHMETIC_FAST, ARITHMETIC_EXACT } run_arithmetic;
typedef enum run_backing { BACKING_CACHING, BACKING_MALLOC_ASYNC } run_backing;

typedef struct run_options {
  load_options load;
  bool json, tensors, same_batch, without_offload;
  bool timed, contents, guards, nvtx; /* cuda */
  const char *executor, *plan, *data, *dump, *record, *disk_dir;
  const char *trace, *trace_ranks; /* cuda */
  int arithmetic, backing;         /* cuda; run_arithmetic, run_backing, -1: not given */
  int64_t steps, threads, seed;
  int64_t gpus; /* cuda; -1: as many as there are */
  double learning_rate;
  int64_t interleave;    /* the seed of an order; -1: the program's */
  int64_t interleavings; /* orders to compare; 0: none */
} run_options;

/* False after a diag error. *right: no check has failed. */
bool run_scenario(const run_options *o, bool *right, arena *a, diag *d);

#endif
