/* The last step of a run on GPUs as a trace: its ops with their times, and what ranks came to. */
#ifndef OFFSIM_SIM_CLI_RUN_CUDA_TRACE_H
#define OFFSIM_SIM_CLI_RUN_CUDA_TRACE_H

#include "cuda/exec/executor.h"
#include "traces/record.h"

/* `to`: an open trace_writer. */
cuda_run_step_done record_last_step;

#endif
