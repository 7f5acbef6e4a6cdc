/*
 * Device memory that a plan asks for, in program order: each buffer rounded up as the allocator
 * does. A pure function of the plan.
 */
#ifndef OFFSIM_SIM_PREDICT_REQUESTED_H
#define OFFSIM_SIM_PREDICT_REQUESTED_H

#include "sim/plan/plan.h"

/* Of the buffers that are there before the first op. */
int64_t requested_before_bytes(const rank_plan *r);

/* What an op adds. */
int64_t requested_change_bytes(const rank_plan *r, const plan_op *o);

int64_t requested_peak_bytes(const rank_plan *r);
/* ... of the rank that requests most. */
int64_t plan_requested_peak_bytes(const plan *p);

#endif
