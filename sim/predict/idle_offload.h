/*
 * Offload settings that move nothing, found in the plan: what was asked for, and has no copy in a steady
 * iteration, with the reason.
 */
#ifndef OFFSIM_SIM_PREDICT_IDLE_OFFLOAD_H
#define OFFSIM_SIM_PREDICT_IDLE_OFFLOAD_H

#include "sim/predict/prediction.h"

typedef struct idle_offload {
  const char *name; /* a word of offload_modules, or of offload.system: that moves nothing at all */
  const char *reason; /* "all 4 groups stay, as ..." */
} idle_offload;

/* What the prediction's settings ask for in vain; `count` of them, in `a`. */
const idle_offload *idle_offloads(const prediction *p, uint32_t *count, arena *a);

#endif
