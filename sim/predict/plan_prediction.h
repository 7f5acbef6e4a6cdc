/*
 * What a plan that was given as text takes on a machine: one iteration, each rank on a GPU of its
 * own, hosts filled one after the other. There is no configuration, so nothing to compare it with.
 */
#ifndef OFFSIM_SIM_PREDICT_PLAN_PREDICTION_H
#define OFFSIM_SIM_PREDICT_PLAN_PREDICTION_H

#include "sim/engine/engine.h"
#include "sim/engine/replay.h"

typedef struct plan_prediction {
  const machine *machine;
  uint32_t rank_count;
  timeline times;
  replay_result *memory; /* [rank_count] */
} plan_prediction;

/* False after a diag error: the plan deadlocks. Release it in either case. */
bool plan_predict(plan_prediction *p, const plan *of, const machine *m, arena *a, diag *d);
void plan_prediction_release(plan_prediction *p);

#endif
