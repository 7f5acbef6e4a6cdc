/*
 * The host time that page-locking costs: the first use of every pinned host buffer is a call that maps it
 * for the GPU and holds the host thread up. Later iterations find all buffers there.
 */
#ifndef OFFSIM_SIM_ENGINE_PAGE_LOCKS_H
#define OFFSIM_SIM_ENGINE_PAGE_LOCKS_H

#include "sim/base/arena.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* For each HOST_ALLOC of the rank, in order: picoseconds. NULL unless the plan is a process's first
 * iteration, which begins with the mark of set-up. Buffers given back count as free at once. */
const int64_t *page_lock_costs(const rank_plan *p, const machine *m, arena *a);

#endif
