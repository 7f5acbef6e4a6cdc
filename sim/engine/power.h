/*
 * A GPU whose matrix products would draw more power than it may lowers its clock until it does not.
 *
 *     demand   = base + energy of an operation x operations / time at full clock
 *     products take (1 + slowdown x (demand / limit - 1)) of their time at full clock
 *
 * Power falls faster than the clock, because the voltage falls with it; so the slowdown is less
 * than demand over limit. The average over an iteration is taken: clocks settle within
 * milliseconds, but which products meet is not followed. What only moves bytes keeps its time:
 * memory has a clock of its own.
 */
#ifndef OFFSIM_SIM_ENGINE_POWER_H
#define OFFSIM_SIM_ENGINE_POWER_H

#include "sim/engine/slowdown.h"
#include "sim/machine/machine.h"

/* Parts per million by which a rank's matrix products and attention take longer. */
int64_t power_slowdown_ppm(const machine *m, const rank_load *load);

#endif
