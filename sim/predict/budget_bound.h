/*
 * The least step of a run whose saved tensors have to fit a budget of device memory, however they
 * are moved or computed again.
 *
 * Take a kernel of the run that keeps everything. When it runs, its operands are on the device. Of
 * the saved tensors that are written and that backward has yet to read, those that the budget does
 * not hold beside the operands, weights, gradients, optimizer states and workspaces are then on the
 * host or nowhere:
 *
 *   on the host   They went out before that moment and come back after it.
 *   nowhere       Kernels run again after it: the one that wrote them, and those that make what it
 *                 reads, unless that was kept in place of them.
 *
 *   step >= max(compute before it, bytes / rate out) +
 *           max(compute after it and again, bytes / rate back)
 *
 * The moment is the one at which most bytes do not fit. A maximum is no less than any mean of its
 * two parts. For given weights of the means, what is kept or computed again costs no less than the
 * least cut of a network (least_cut.h). The bound is the best over the weights.
 *
 * Power. The kernels of the run that keeps everything run in this order, whatever is between them.
 * Their times are those at the clock that power allows them back to back (pace.h). A wait, or kernels that
 * run again and draw less, are rests, by which the others gain. A wait costs more than it gains if the
 * weights of the link are at most 1 less what it gains.
 *
 * The link is the GPU's alone, and other memory counts for nothing.
 */
#ifndef OFFSIM_SIM_PREDICT_BUDGET_BOUND_H
#define OFFSIM_SIM_PREDICT_BUDGET_BOUND_H

#include "sim/config/settings.h"
#include "sim/machine/machine.h"

/* More than any step: not even with nothing saved. */
#define BUDGET_TOO_SMALL INT64_MAX

typedef struct budget_bounds {
  int64_t step_ps;    /* of the rank that takes longest; BUDGET_TOO_SMALL */
  int64_t kernels_ps; /* of this, what its kernels take that run in any case */
  int64_t over_bytes; /* of its saved tensors, what does not fit at the moment; at least 0 */
} budget_bounds;

/* `keep_all`: without offload and recomputation. False after a diag error. */
bool budget_bound(budget_bounds *b, const settings *keep_all, const machine *m,
                  int64_t budget_bytes, arena *a, diag *d);

#endif
