/* The last step of a run on GPUs as a trace: its ops with their times, and the ranks' figures. */
#ifndef OFFSIM_CUDA_EXEC_TRACE_H
#define OFFSIM_CUDA_EXEC_TRACE_H

#include "cuda/exec/executor.h"

/* `to`: an open trace_recorder. */
cuda_run_step_done record_last_step;

#endif
