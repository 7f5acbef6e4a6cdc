/* Both iterations of a configuration, compiled and verified: what `check` reports in full, and
 * `predict` in one line. */
#ifndef OFFSIM_SIM_PREDICT_SAFETY_H
#define OFFSIM_SIM_PREDICT_SAFETY_H

#include "sim/compile/compile.h"
#include "sim/predict/safety_summary.h"
#include "sim/verify/verify.h"

/* One verified iteration. */
typedef struct verified_iteration {
  const char *name; /* "warmup", "steady", or the name of a plan's file */
  const verification *verification;
} verified_iteration;

typedef struct safety {
  compilation first, later;
  verification verified[SAFETY_ITERATIONS];
  verified_iteration iterations[SAFETY_ITERATIONS];
  bool complete, safe;
} safety;

/* The first iteration, and a later one, which finds the pools of host buffers that the first has
 * made. False after a diag error. Release it in either case. */
bool safety_find(safety *found, const settings *s, uint32_t threads, arena *a, diag *d);
void safety_release(safety *found);

#endif
