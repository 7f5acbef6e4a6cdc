/*
 * What makes kernels longer than they are alone at full clock:
 *
 *   copies   that use the same memory while the kernel runs, by a few permille to a few percent
 *            (sim/machine: link.*_slowdown_*), for the part of it during which they run;
 *   power    that the GPU lacks then (power.h), times the call's slowdown;
 *
 * and what makes copies longer than their bytes at the link's rate: streams that wait.
 *
 * A stream that waits for an event has its GPU look for that event again and again, it seems. One
 * does no harm. Where a second stream beside compute has work in hand too (it waits itself, or is
 * in an exchange whose other side is not there), copies between GPU and host get slower: on H200s
 * by 10 percent out and 3 back, for as long as that lasts. Pipelines with virtual stages and
 * overlapped exchanges are like that nearly all the time. How it was found: docs/06-real-gpu.md.
 *
 * All are read off a simulation in which nothing is slowed.
 */
#ifndef OFFSIM_SIM_ENGINE_SLOWDOWN_H
#define OFFSIM_SIM_ENGINE_SLOWDOWN_H

#include "sim/base/arena.h"
#include "sim/engine/costs.h"
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
