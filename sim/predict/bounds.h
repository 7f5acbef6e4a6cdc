/*
 * What is known of a setting before it is simulated: bounds that hold for every timing.
 *
 *   allocated   program order alone decides what the tensors of a steady iteration request. What a
 *               device must have is never less.
 *   step        the run without offload in a machine that has memory enough. Offload adds ops, waits and
 *               disturbance to that run, and takes none away. Two bounds, of which the higher one counts:
 *
 *                 at full clock   the step of that run
 *                 power           each rank's compute stream alone, at the clock that power allows (pace.h)
 */
#ifndef OFFSIM_SIM_PREDICT_BOUNDS_H
#define OFFSIM_SIM_PREDICT_BOUNDS_H

#include "sim/config/settings.h"
#include "sim/machine/machine.h"

/* The peak of the rank that requests most; no more than that of `predict`. False after a diag
 * error. */
bool allocated_bound(int64_t *bytes, const settings *s, arena *a, diag *d);

/* The step of a run without offload, in picoseconds; no more than that of `predict` for the same
 * run with any offload system. False after a diag error. */
bool step_bound(int64_t *step_ps, const settings *without_offload, const machine *m, arena *a,
                diag *d);

#endif
