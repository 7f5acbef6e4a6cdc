/* A plan given as text, run without arithmetic: what each op reads decides what it writes. */
#ifndef OFFSIM_SIM_CLI_RUN_PLAN_H
#define OFFSIM_SIM_CLI_RUN_PLAN_H

#include "sim/exec/executor.h"

typedef struct run_plan_options {
  const char *path;
  exec_order order;       /* interleaved: this order alone is compared with the program's */
  uint64_t interleavings; /* or so many */
  bool json;
} run_plan_options;

/* False after a diag error. *right: all orders that were run agree, and read only what is there. */
bool run_plan_text(const run_plan_options *o, bool *right, arena *a, diag *d);

#endif
