/*
 * A training run as a trace (traces/record.h): a line for each op when it ends, with a fingerprint
 * of each buffer that it has written: the 128-bit XXH3 of the elements of its view, in row-major
 * order; for a copy or message, of the moved bytes. Files and workspaces have no fingerprint.
 */
#ifndef OFFSIM_SIM_TRAIN_TRACE_H
#define OFFSIM_SIM_TRAIN_TRACE_H

#include "sim/exec/executor.h"
#include "traces/recorder.h"

/* Records a finished op of the recorder's plan, if traces include its kind. */
void train_record_op(trace_recorder *to, const execution *e, uint32_t step, const exec_rank *rank,
                     uint32_t op);

#endif
