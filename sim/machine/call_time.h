/*
 * How long a call of a plan takes alone on a GPU of a machine, whole picoseconds.
 *
 * Where the machine's file has times of measured calls, the roofline's time is corrected by them: a
 * call that was measured takes what was measured; any other one the roofline's time multiplied by
 * the mean of measured over roofline of the nearest measured calls of the same kernel and type.
 * Near is a matter of ratios: of dims, bytes and scalars, in octaves; the weight of a neighbour is
 * 1 over its distance squared.
 *
 * All of it at full clock. How much longer products and attention take when the GPU lowers its
 * clock for want of power (sim/engine/power.h) the machine's keys say
 * (gpu.power_slowdown_permille); what only moves bytes keeps its time. A measured call may have a
 * slowdown of its own; calls that were not measured then have their neighbours' mean.
 */
#ifndef OFFSIM_SIM_MACHINE_CALL_TIME_H
#define OFFSIM_SIM_MACHINE_CALL_TIME_H

#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* A call that was measured. */
typedef struct measured_call {
  plan_call call;
  int64_t ps;                /* at full clock */
  int64_t slowdown_permille; /* how much longer it takes, over how much demand exceeds power */
  int64_t roofline_ps;
} measured_call;

typedef struct measured_calls {
  const measured_call *items;
  uint32_t count;
} measured_calls;

typedef struct call_time {
  int64_t ps;
  int64_t slowdown_permille; /* as in measured_call */
} call_time;
call_time call_time_of(const machine *m, const plan_call *c);

/* The time by the formulas of roofline.h alone. */
int64_t call_roofline_ps(const machine *m, const plan_call *c);

/* A kernel whose time is that of the bytes it moves. */
bool call_is_memory_bound(const plan_call *c);

/* What is slowed for want of power: each kind has a key of its own in machine files. */
typedef enum slowed_kind { SLOWED_PRODUCT, SLOWED_ATTENTION, SLOWED_KINDS } slowed_kind;

/* SLOWED_KINDS: keeps its time. */
slowed_kind call_slowed_kind(const plan_call *c);

/* The machine's key; none of what keeps its time. */
int64_t call_slowdown_permille(const machine *m, const plan_call *c);

/* What a kernel draws beyond the GPU's base (gpu.power_base_w), nanojoules; 0 of collectives. */
int64_t call_energy_nj(const machine *m, const plan_call *c);

#endif
