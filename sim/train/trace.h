/*
 * A training run as a trace (traces/record.h): a line for each op when it is over, with a
 * fingerprint of each buffer that it has written: XXH3 with 128 bits of the elements that it sees,
 * in row-major order; of a copy or message, of the bytes that are moved. What lies in a file is not
 * known, nor what a kernel leaves in a workspace.
 */
#ifndef OFFSIM_SIM_TRAIN_TRACE_H
#define OFFSIM_SIM_TRAIN_TRACE_H

#include "sim/exec/executor.h"
#include "traces/recorder.h"

/* An op of the recorder's plan that is over, if traces have it. */
void train_record_op(trace_recorder *to, const execution *e, uint32_t step, const exec_rank *rank,
                     uint32_t op);

#endif
