/*
 * The call of a collective: its group's size, and how far apart its members stand in global rank numbers
 * (order tp-cp-ep-dp-pp).
 */
#ifndef OFFSIM_SIM_COMPILE_COLLECTIVES_H
#define OFFSIM_SIM_COMPILE_COLLECTIVES_H

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

/* `bytes` as kernels.h says for the kind. */
plan_call collective_call(const settings *s, collective_kind kind, comm_group group, int64_t bytes);

#endif
