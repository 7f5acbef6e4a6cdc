/* The executor of GPUs (sim/exec/executor.h), and what it measures of a run. */
#ifndef OFFSIM_CUDA_EXEC_EXECUTOR_H
#define OFFSIM_CUDA_EXEC_EXECUTOR_H

#include "cuda/exec/exec.h"

struct cuda_run;
/* Called when a step is over that options.times_from measures, or the last one; its times and
 * contents can be asked for. */
typedef void cuda_run_step_done(const struct cuda_run *run, const cuda_exec *e, uint32_t step,
                                const plan *p, void *context);

typedef struct cuda_run {
  cuda_options options;
  uint32_t steps, ranks;
  const exec_layout *layout;     /* when the executor has been created */
  cuda_run_step_done *step_done; /* NULL: nobody asks */
  void *context;                 /* its */
  int64_t *steps_ps;             /* [steps], wall clock */
  cuda_memory *memory;           /* [ranks], after the last step */
  arena *memory_of;
} cuda_run;

/* `run` must outlive it. With `prints` gradients and parameters are digested where they lie; exact
 * arithmetic brings them to the host, where they are fingerprinted as ref's are. */
executor cuda_executor(cuda_run *run);

#endif
