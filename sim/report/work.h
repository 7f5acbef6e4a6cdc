/*
 * What an op of a plan is, in words and as a colour: for traces, pictures and pages. Private to sim/report.
 */
#ifndef OFFSIM_SIM_REPORT_WORK_H
#define OFFSIM_SIM_REPORT_WORK_H

#include "sim/base/arena.h"
#include "sim/plan/plan.h"
#include "sim/report/picture.h"

extern const char *const paint_names[PAINTS];

/* "m 4096 n 7168 k 2048 batch 1, bf16"; of a collective "tp, 8 ranks". */
const char *call_shape(const plan_call *call, arena *a);

/* "forward m3 c0": micro-batch and chunk. */
const char *phase_name(const plan_mark *m, arena *a);

/* By op of the rank; only those that take time on a stream mean something. */
const paint *op_paints(const plan *p, uint32_t rank, arena *a);

#endif
