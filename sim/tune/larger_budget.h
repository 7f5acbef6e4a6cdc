/*
 * What more memory would buy: of the settings that do not fit, one that needs little more of it and takes
 * less than worth_ps of the best that fits.
 *
 *     without offload   the one that requests most: if it is not faster, memory alone buys nothing;
 *                       then by halving the one that requests least of those that are
 *     with offload      by halving, one that needs less than that
 *
 * Halving takes a dozen plans of hundreds, and may miss one that needs still less: what is found is
 * exact, not that it is the least. Memory is counted as tune's options take it, in thousandths of a GiB.
 */
#ifndef OFFSIM_SIM_TUNE_LARGER_BUDGET_H
#define OFFSIM_SIM_TUNE_LARGER_BUDGET_H

#include "sim/tune/tune.h"

/* A setting that does not fit. */
typedef struct misfit {
  uint32_t first; /* index of the first that has its plans in common with it */
  bool offloads;
  int64_t step_bound_ps;
  int64_t requested_bytes;    /* a device has to have them, and more */
  int64_t host_missing_bytes; /* > 0: devices have enough, and hosts lack these */
  tuned_setting setting;      /* its figures are known if host_missing_bytes > 0 */
} misfit;

/* Beside the best of `to`, if any fits. `of` comes into another order. False after a diag error: a
 * resource was refused. */
bool find_larger_budgets(tuned *to, const tune_request *r, misfit *of, uint32_t count, diag *d);

#endif
