/* The last step of a run on GPUs, its ops with their times: as a record, with the ranks' figures, and as a
 * timeline. */
#ifndef OFFSIM_CUDA_EXEC_TRACE_H
#define OFFSIM_CUDA_EXEC_TRACE_H

#include <stdio.h>

#include "cuda/exec/executor.h"
#include "traces/recorder.h"

/* Either may be NULL. */
typedef struct step_outputs {
  trace_recorder *record; /* open */
  FILE *timeline;
  const bool *ranks; /* of the timeline, by rank; at least one */
} step_outputs;

/* `to`: step_outputs. */
cuda_run_step_done put_last_step;

#endif
