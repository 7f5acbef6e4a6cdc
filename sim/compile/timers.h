/*
 * Megatron-LM's timers (core/timers.py). A timer of the run's level waits for the device where it starts and
 * where it stops, so the host has no lead there. Timers of level 2 enclose each forward, backward and
 * exchange of a micro-batch, those of level 1 the parts of the step after them, with a barrier before each
 * (timing_log_level).
 *
 * Times are logged at the end of every log_interval-th step, and here of a step if that is 1. Until November
 * 2025 (ffb8c357, #2210) every step also looked for the minimum and maximum of all timers by small kernels,
 * for each name that a timer could have, at level 0 too.
 */
#ifndef OFFSIM_SIM_COMPILE_TIMERS_H
#define OFFSIM_SIM_COMPILE_TIMERS_H

#include "sim/compile/walk.h"

/* Around a part of a micro-batch: where timers start or stop. */
void timers_around_pass(walk *w);
/* Around `timers` parts of the step that come one after the other. */
enum { TIMERS_OF_GRADIENTS = 5, TIMERS_OF_STEP = 7 };
void timers_around_step(walk *w, uint32_t timers);
/* At the end of the step. */
void timers_log(walk *w);

#endif
