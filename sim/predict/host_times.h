/*
 * When a rank's host thread issued each op of a prediction, and where it waited. The engine keeps the
 * host's time at marks, allocations and frees; between two of them the costs of the ops say the rest, and
 * what is left is a wait: for the GPU, for a full queue, for the driver.
 */
#ifndef OFFSIM_SIM_PREDICT_HOST_TIMES_H
#define OFFSIM_SIM_PREDICT_HOST_TIMES_H

#include "sim/predict/prediction.h"

typedef struct host_times {
  int64_t *issued_ps; /* [ops]: the host has issued the op */
  int64_t *waited_ps; /* [ops]: it waited as long before the op, within a few ops */
} host_times;

host_times host_times_of(const prediction *p, uint32_t rank, arena *a);

#endif
