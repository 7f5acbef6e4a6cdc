/*
 * The time of a plan's call alone on a GPU of a machine, in whole picoseconds.
 *
 * If the machine's file lists measured calls, they correct the roofline: a measured call takes its
 * measured time; any other call takes the roofline's time multiplied by the mean ratio of measured
 * to roofline time of the nearest measured calls of the same kernel and type. Distance counts
 * ratios of dims, bytes and scalars, in octaves; the weight of a neighbour is 1 over its distance
 * squared.
 *
 * All times are at full clock. Keys of the machine (gpu.power_slowdown_permille) say how much
 * longer products and attention take under power throttling (sim/engine/power.h); memory-bound
 * kernels keep their time. A measured call may have its own slowdown; other calls then get their
 * neighbours' mean.
 */
#ifndef OFFSIM_SIM_MACHINE_CALL_TIME_H
#define OFFSIM_SIM_MACHINE_CALL_TIME_H

#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* A call that was measured. */
typedef struct measured_call {
  plan_call call;
  int64_t ps;                /* at full clock */
  int64_t slowdown_permille; /* how much longer it takes, relative to the excess of power */
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

/* The time by the formulas of roofline.h, without measured calls. */
int64_t call_roofline_ps(const machine *m, const plan_call *c);

/* Whether the time to move its bytes is the kernel's time. */
bool call_is_memory_bound(const plan_call *c);

/* Whether the host's processor runs it. */
bool call_is_on_host(const plan_call *c);

/* Whether it is a collective of kernels whose ranks NVLink joins. */
bool call_is_joined(const machine *m, const plan_call *c);

/* Kinds that power throttling slows: each has its own key in machine files. */
typedef enum slowed_kind { SLOWED_PRODUCT, SLOWED_ATTENTION, SLOWED_KINDS } slowed_kind;

/* SLOWED_KINDS: throttling does not change its time. */
slowed_kind call_slowed_kind(const plan_call *c);

/* The machine's key for the call's kind; 0 if throttling does not change its time. */
int64_t call_slowdown_permille(const machine *m, const plan_call *c);

/* Operations of a matrix product or of attention; 0 for every other call. */
int64_t call_flops(const plan_call *c);

/* The energy that a kernel or collective draws beyond the GPU's base power (gpu.power_base_w), nanojoules. */
int64_t call_energy_nj(const machine *m, const plan_call *c);

#endif
