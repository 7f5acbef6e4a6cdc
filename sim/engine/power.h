/*
 * Power throttling: a GPU whose kernels would draw more power than its limit lowers its clock until
 * they do not.
 *
 *     demand(window) = base + energy of the kernels / time, over the window, at full clock
 *     excess         = (2 x demand(60 ms) + demand(1 s)) / 3 / limit - 1, at least 0
 *     a kernel takes (1 + slowdown x excess) of its time at full clock
 *
 * Power falls faster than the clock, because the voltage falls with it, so the slowdown is less
 * than demand over limit. Memory has a separate clock, so kernels that wait for it are slowed less.
 *
 * Measured on H200: after a wait of 100 ms, products keep the full clock for 40 ms and have lost 15
 * percent of it after 65 ms. After an optimizer step of 30 ms, which only moves bytes, they have
 * the full clock again for as long. Without waits they lose 20 percent, with swings of a second, so
 * a longer window counts too. The iteration is assumed to repeat. A GPU that waits, for copies or
 * for other ranks, draws less power, so the times come from a simulation at full clock.
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
  /* energy of all earlier slices; before power_curve_settle: [slice + 1], energy of the slice */
  int64_t *until_nj;
  uint32_t slices;
  int64_t slice_ps, length_ps;
} power_curve;

/* Its memory comes from `a`. */
void power_curve_new(power_curve *c, int64_t length_ps, arena *a);
/* begin_ps and end_ps are within the length. */
void power_curve_add(power_curve *c, int64_t begin_ps, int64_t end_ps, int64_t energy_nj);
/* False: demand never exceeds the limit. */
bool power_curve_settle(power_curve *c, const machine *m);
/* The excess at a time, in parts per million. */
int64_t power_curve_excess_ppm(const power_curve *c, int64_t at_ps);

#endif
