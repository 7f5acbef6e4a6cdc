/*
 * What makes kernels longer than they are alone at full clock:
 *
 *   copies   that use the same memory while the kernel runs, by a few permille to a few percent
 *            (sim/machine: link.*_slowdown_*), for the part of it that meets them;
 *   power    that the GPU lacks then (power.h), times the call's slowdown;
 *
 * and what makes copies longer than their bytes at the link's rate: streams that wait (waiting.h).
 *
 * All are read off a simulation in which nothing is slowed.
 */
#ifndef OFFSIM_SIM_ENGINE_SLOWDOWN_H
#define OFFSIM_SIM_ENGINE_SLOWDOWN_H

#include "sim/base/arena.h"
#include "sim/engine/durations.h"
#include "sim/plan/plan.h"

/* A rank whose ops ran from start_ps[op] to end_ps[op], in an iteration of step_ps. */
typedef struct undisturbed {
  const rank_plan *plan;
  const call_cost *costs; /* by call */
  const int64_t *start_ps, *end_ps;
  int64_t step_ps;
} undisturbed;

/* By op, parts per million of its time alone (kernels: call_cost.ps, copies: host_copy_ps); NULL:
 * none is slowed. */
const int64_t *slowdown_ppm(const undisturbed *u, const machine *m, arena *a);

#endif
