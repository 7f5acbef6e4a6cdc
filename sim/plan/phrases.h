/*
 * What calls and phases of a plan are, in words for people.
 */
#ifndef OFFSIM_SIM_PLAN_PHRASES_H
#define OFFSIM_SIM_PLAN_PHRASES_H

#include "sim/base/arena.h"
#include "sim/plan/plan.h"

/* "m 4096 n 7168 k 2048 batch 1, bf16"; of a collective "tp, 8 ranks". */
const char *call_shape(const plan_call *call, arena *a);

/* "forward m3 c0": micro-batch and chunk. */
const char *phase_name(const plan_mark *m, arena *a);

#endif
