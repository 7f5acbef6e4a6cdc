/* The host time of driver calls, ps each. */
#ifndef OFFSIM_CUDA_CALIBRATE_HOST_COSTS_H
#define OFFSIM_CUDA_CALIBRATE_HOST_COSTS_H

#include "cuda/device/device.h"
#include "sim/base/diag.h"

typedef struct host_costs {
  int64_t launch_ps; /* of a kernel (cuda/device: a fill of a few bytes) */
  int64_t event_ps;  /* of a record or a wait */
  int64_t copy_ps;   /* an asynchronous copy */
  int64_t map_ps;    /* 20 MiB of device memory from the driver */
  int64_t pinned_gib_ps;
} host_costs;

/* On GPU 0. False after a diag error (status 3). */
bool measure_host_costs(const gpu_driver *g, host_costs *costs, diag *d);

#endif
