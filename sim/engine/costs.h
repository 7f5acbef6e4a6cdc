/*
 * Undisturbed times of a plan's calls and messages on a machine, in picoseconds. Each distinct call
 * is looked up once, by the formulas of sim/machine/roofline.h.
 */
#ifndef OFFSIM_SIM_ENGINE_COSTS_H
#define OFFSIM_SIM_ENGINE_COSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/engine/links.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* False after a diag error: a size that overflows int64 in the simulation, or a page-locked buffer
 * that its pool cannot have. Only the text of a plan can contain them. */
bool sizes_are_countable(const plan *p, diag *d);

/* A call's costs when it runs alone on the GPU. */
typedef struct call_cost {
  int64_t ps;                         /* at full clock; CAP at most */
  int64_t power_permille;             /* how much longer it takes, relative to the excess of power
                                       * (power.h) */
  int64_t d2h_permille, h2d_permille; /* how much longer it takes while copies run */
  int64_t collective_permille; /* ... while a collective by NVLink runs; of such a collective,
                                       * while compute runs */
  bool joined;                 /* it is such a collective */
  bool is_collective;
  int64_t energy_nj; /* as call_energy_nj (sim/machine/call_time.h) */
  int64_t host_ps;   /* host time to issue it (sim/machine/host_work.h) */
} call_cost;

/* By call of the plan. */
const call_cost *call_costs(const plan *p, const machine *m, arena *a);

/* Time of a message once both sides are ready. */
int64_t message_ps(const machine *m, const rank_place *places, const plan_message *message);

/* The host time of page-locking, for each HOST_ALLOC of the rank, in order: the first use of a
 * pinned host buffer is a call that maps it for the GPU, and the host thread waits for it. NULL
 * unless the plan is a process's first iteration, which begins with the set-up mark: later
 * iterations reuse its buffers. Returned buffers count as free at once. */
const int64_t *page_lock_costs(const rank_plan *p, const machine *m, arena *a);

#endif
