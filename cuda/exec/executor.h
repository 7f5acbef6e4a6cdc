/* The executor of GPUs (sim/exec/executor.h), and what it measures of a run. */
#ifndef OFFSIM_CUDA_EXEC_EXECUTOR_H
#define OFFSIM_CUDA_EXEC_EXECUTOR_H

#include "cuda/exec/exec.h"

struct cuda_run;
/* Called at the end of a step that options.times_from measures, and of the last one; its times and
 * contents are available. */
typedef void cuda_run_step_done(const struct cuda_run *run, const cuda_exec *e, uint32_t step,
                                const plan *p, void *context);

typedef struct cuda_run {
  cuda_options options;
  uint32_t steps, ranks;
  const exec_layout *layout;     /* set when the executor is created */
  cuda_run_step_done *step_done; /* may be NULL */
  void *context;                 /* its */
  int64_t *steps_ps;             /* [steps], wall clock */
  cuda_memory *memory;           /* [ranks], after the last step */
  arena *memory_of;
} cuda_run;

/* `run` must outlive it. With `prints` gradients and parameters are digested on the device; exact
 * arithmetic copies them to the host, where they are fingerprinted like ref's. */
executor cuda_executor(cuda_run *run);

#endif
