/*
 * A GPU whose kernels would draw more power than it may lowers its clock until they do not.
 *
 *     demand(window) = base + energy of the kernels / time, over the window, at full clock
 *     excess         = (2 x demand(60 ms) + demand(1 s)) / 3 / limit - 1, at least 0
 *     a kernel takes (1 + slowdown x excess) of its time at full clock
 *
 * Power falls faster than the clock, because the voltage falls with it; so the slowdown is less
 * than demand over limit; and what waits for memory, which has a clock of its own, is slowed less.
 *
 * H200s do so: behind a wait of 100 ms products keep their full clock for 40 ms and have lost 15
 * percent of it after 65; behind an optimizer of 30 ms, which moves bytes, they win it back for as
 * long. Where no waits are, they lose 20 percent, with swings of a second; so the power of a longer
 * time counts, too. Before the iteration came another one like it. A GPU that waits, for copies or
 * for other ranks, draws less: so the times are those of a simulation at full clock.
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

#define POWER_FAST_PS (60 * PS_PER_MS)
#define POWER_SLOW_PS (1000 * PS_PER_MS)

typedef struct power_curve {
  int64_t *excess_ppm; /* by slice */
  int64_t *until_nj; /* energy of the slices before; until it settles: [slice + 1], of the slice */
  uint32_t slices;
  int64_t slice_ps, length_ps;
} power_curve;

/* Memory from `a`. */
void power_curve_new(power_curve *c, int64_t length_ps, arena *a);
/* Within the length. */
void power_curve_add(power_curve *c, int64_t begin_ps, int64_t end_ps, int64_t energy_nj);
/* False: demand is over the limit nowhere. */
bool power_curve_settle(power_curve *c, const machine *m);
/* At a time, parts per million. */
int64_t power_curve_excess_ppm(const power_curve *c, int64_t at_ps);

#endif
