/*
 * Times of kernels, from models that ship with offsim (cuda/calibrate/models): each is trained for
 * a few steps on one GPU, and every kernel of the last step is a sample of its call.
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_MODELS_H
#define OFFSIM_SIM_CLI_CALIBRATE_MODELS_H

#include "cuda/calibrate/calibrate.h"
#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/plan/plan.h"

/* A call, and how long it took each time that it ran. */
typedef struct sampled_call {
  plan_call call;
  int64_t ps; /* the median */
  uint32_t samples;
} sampled_call;

typedef struct sampled_calls {
  sampled_call *items;
  uint32_t count, capacity;
} sampled_calls;

/* Shipped: name and text of the scenario; the last one has a NULL name. */
typedef struct calibration_model {
  const char *name, *text;
} calibration_model;
extern const calibration_model calibration_models[];

/* One after the other, those that do not fit the GPU are left out with a note. False after a diag
 * error. */
bool calibrate_kernels(sampled_calls *calls, calibrate_progress *progress, void *context, arena *a,
                       diag *d);

#endif
