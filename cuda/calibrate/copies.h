/* Copies of some GPUs at once, timed by the host's clock. */
#ifndef OFFSIM_CUDA_CALIBRATE_COPIES_H
#define OFFSIM_CUDA_CALIBRATE_COPIES_H

#include "cuda/device/device.h"
#include "sim/base/diag.h"

typedef enum copy_direction { COPY_OUT, COPY_IN, COPY_BOTH } copy_direction;

typedef struct copy_run {
  const gpu_driver *driver;
  uint32_t gpus; /* 0 .. gpus - 1, each with a host thread of its own */
  copy_direction direction;
  bool pageable;   /* to or from memory that is not page-locked */
  int64_t bytes;   /* of one copy */
  uint32_t copies; /* of each GPU and direction */
} copy_run;

/* Time from when all GPUs begin until the last is done, ps; what is allocated for it is given back.
 * False after a diag error (status 3). */
bool time_copies(const copy_run *run, int64_t *ps, diag *d);

/* From GPU `from` to GPU `to`. */
bool time_peer_copies(const copy_run *run, uint32_t from, uint32_t to, int64_t *ps, diag *d);

/* The host's monotonic clock. */
int64_t clock_now_ps(void);

#endif
