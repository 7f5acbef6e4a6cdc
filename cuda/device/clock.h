/* The host's monotonic clock, picoseconds: for what is measured, never for what is computed. */
#ifndef OFFSIM_CUDA_DEVICE_CLOCK_H
#define OFFSIM_CUDA_DEVICE_CLOCK_H

#include <time.h>

#include "sim/base/units.h"

static inline int64_t clock_now_ps(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * PS_PER_S + (int64_t)t.tv_nsec * PS_PER_NS;
}

#endif
