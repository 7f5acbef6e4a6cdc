/*
 * The call of a collective: the size of its group, and the stride between its members' global ranks
 * (order tp-cp-ep-dp-pp).
 */
#ifndef OFFSIM_SIM_COMPILE_COLLECTIVES_H
#define OFFSIM_SIM_COMPILE_COLLECTIVES_H

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

/* kernels.h defines what `bytes` counts for each kind. */
plan_call collective_call(const settings *s, collective_kind kind, comm_group group, int64_t bytes);

#endif
