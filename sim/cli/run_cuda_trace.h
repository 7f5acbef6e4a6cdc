/* The last step of a run on GPUs as a trace: its ops with their times, and what ranks came to. */
#ifndef OFFSIM_SIM_CLI_RUN_CUDA_TRACE_H
#define OFFSIM_SIM_CLI_RUN_CUDA_TRACE_H

#include "sim/cli/run_cuda.h"
#include "traces/record.h"

/* `to`: an open trace_writer. */
run_cuda_step_done record_last_step;

#endif
