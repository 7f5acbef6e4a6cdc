/*
 * How long the calls and messages of a plan take on a machine, in picoseconds: each distinct call
 * is looked up once. The formulas are those of sim/machine/roofline.h.
 */
#ifndef OFFSIM_SIM_ENGINE_DURATIONS_H
#define OFFSIM_SIM_ENGINE_DURATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/engine/links.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* Of a call, alone on the GPU. */
typedef struct call_cost {
  int64_t ps;                         /* at full clock */
  int64_t power_permille;             /* longer, of what it lacks in power (power.h) */
  int64_t d2h_permille, h2d_permille; /* longer, while copies run */
  int64_t energy_nj;                  /* as call_energy_nj (sim/machine/call_time.h) */
} call_cost;

/* By call of the plan. */
const call_cost *call_costs(const plan *p, const machine *m, arena *a);

/* From when both sides are ready. */
int64_t message_ps(const machine *m, const rank_place *places, const plan_message *message);

#endif
