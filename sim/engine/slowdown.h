/*
 * Kernels run a little slower while copies use the same memory and the same power: a few permille to a
 * few percent (sim/machine: link.*_slowdown_*). Which kernel meets which copy is not followed; every
 * kernel of a rank gets the average over the iteration, that is, the share of its compute time in which
 * copies run: bytes over the rate that all ranks of the host leave each other, at most all of it.
 */
#ifndef OFFSIM_SIM_ENGINE_SLOWDOWN_H
#define OFFSIM_SIM_ENGINE_SLOWDOWN_H

#include "sim/base/arena.h"
#include "sim/engine/links.h"
#include "sim/plan/plan.h"

/* By call, for rank `rank`: `call_ps` made longer. Returns `call_ps` itself where nothing changes. */
const int64_t *slowed_durations(const plan *p, const machine *m, const rank_place *places, uint32_t rank,
                                const int64_t *call_ps, arena *a);

#endif
