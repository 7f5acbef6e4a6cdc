/* A training run on GPUs: what ref/train asks of an executor, from cuda/exec; what was measured. */
#ifndef OFFSIM_SIM_CLI_RUN_CUDA_H
#define OFFSIM_SIM_CLI_RUN_CUDA_H

#include "cuda/exec/exec.h"
#include "ref/train/train.h"

struct run_cuda;
/* Called when a step is over that options.times_from measures, or the last one; its times and
 * contents can be asked for. */
typedef void run_cuda_step_done(const struct run_cuda *run, const cuda_exec *e, uint32_t step,
                                const plan *p, void *context);

typedef struct run_cuda {
  cuda_options options;
  uint32_t steps, ranks;
  const ref_layout *layout;      /* when the executor has been created */
  run_cuda_step_done *step_done; /* NULL: nobody asks */
  void *context;                 /* its */
  int64_t *steps_ps;             /* [steps], wall clock */
  cuda_memory *memory;           /* [ranks], after the last step */
  arena *memory_of;
} run_cuda;

/* `run` must outlive it. With `prints` gradients and parameters are digested where they lie; exact
 * arithmetic brings them to the host, where they are fingerprinted as ref's are. */
train_executor train_on_cuda(run_cuda *run);

#endif
