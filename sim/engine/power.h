/*
 * A GPU whose kernels would draw more power than it may lowers its clock until they do not.
 *
 *     demand   = base + energy of the kernels / time, over the window, at full clock
 *     a kernel takes (1 + slowdown x (demand / limit - 1)) of its time at full clock
 *
 * Power falls faster than the clock, because the voltage falls with it; so the slowdown is less
 * than demand over limit; and what waits for memory, which has a clock of its own, is slowed less.
 * The clock follows the power of the last 200 ms: on H200s it swings with a period of a second, and
 * steps of pipelines and of data parallel ranks that wait for 70 to 200 ms are slowed as their mean
 * power says. Before the iteration came another one like it. A GPU that waits, for copies or for
 * other ranks, draws less: so the times are those of a simulation at full clock.
 *
 *     power_curve c;
 *     power_curve_new(&c, step_ps, a);
 *     power_curve_add(&c, begin_ps, end_ps, energy_nj);  // every kernel
 *     power_curve_settle(&c, m);
 *     int64_t ppm = power_curve_excess_ppm(&c, at_ps);
 */
#ifndef OFFSIM_SIM_ENGINE_POWER_H
#define OFFSIM_SIM_ENGINE_POWER_H

#include <stdbool.h>

#include "sim/base/arena.h"
#include "sim/base/units.h"
#include "sim/machine/machine.h"

#define POWER_WINDOW_PS (200 * PS_PER_MS)

typedef struct power_curve {
  int64_t *excess_ppm; /* by slice; before it settles: its energy, nJ */
  uint32_t slices;
  int64_t slice_ps, length_ps;
} power_curve;

/* Memory from `a`. */
void power_curve_new(power_curve *c, int64_t length_ps, arena *a);
/* Within the length. */
void power_curve_add(power_curve *c, int64_t begin_ps, int64_t end_ps, int64_t energy_nj);
/* False: demand is over the limit nowhere. */
bool power_curve_settle(power_curve *c, const machine *m);
/* Demand over limit less 1 at a time, parts per million, at least 0. */
int64_t power_curve_excess_ppm(const power_curve *c, int64_t at_ps);

#endif
