/*
 * The least step of a run whose saved tensors have to fit a budget of device memory, however they are
 * moved or computed again.
 *
 * Take the moment of the run that keeps everything at which most bytes of saved tensors are written and
 * backward has yet to read them. Whatever a run does with them, those that the budget does not hold beside
 * weights, gradients and optimizer states are then on the host or nowhere:
 *
 *   on the host   They went out before that moment and come back after it.
 *   nowhere       The kernel that wrote them runs again after it, of those with the least time for a
 *                 byte.
 *
 *   step >= max(kernels of compute before it, bytes / rate out) +
 *           max(kernels of compute after it and again, bytes / rate back)
 *
 * The bound is the least over all divisions of the bytes. Kernels have their times at full clock, the
 * link is the GPU's alone, and other memory counts for nothing.
 */
#ifndef OFFSIM_SIM_PREDICT_BUDGET_BOUND_H
#define OFFSIM_SIM_PREDICT_BUDGET_BOUND_H

#include "sim/config/settings.h"
#include "sim/machine/machine.h"

/* More than any step: not even with nothing saved. */
#define BUDGET_TOO_SMALL INT64_MAX

/* `keep_all`: without offload and recomputation. False after a diag error. */
bool budget_bound(int64_t *step_ps, const settings *keep_all, const machine *m,
                  int64_t budget_bytes, arena *a, diag *d);

#endif
