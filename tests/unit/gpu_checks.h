/*
 * What cuda/device/device.h promises, tried on a driver: the host driver in the unit tests, the
 * CUDA driver wherever there is a GPU (tests/gpu).
 */
#ifndef OFFSIM_TESTS_UNIT_GPU_CHECKS_H
#define OFFSIM_TESTS_UNIT_GPU_CHECKS_H

#include "cuda/device/device.h"

typedef struct gpu_check {
  const char *name;
  const char *(*run)(const gpu_driver *g); /* what is wrong; NULL: nothing */
} gpu_check;

extern const gpu_check gpu_checks[];
extern const uint32_t gpu_check_count;

/* A failed call, or something that is not so, ends a check. */
#define GPU_TRY(call)                                                                              \
  do {                                                                                             \
    const char *gpu_try_failure = (call);                                                          \
    if (gpu_try_failure != NULL) return gpu_try_failure;                                           \
  } while (0)
#define GPU_LINE_(line) #line
#define GPU_LINE(line)  GPU_LINE_(line)
#define GPU_EXPECT(fact)                                                                           \
  do {                                                                                             \
    if (!(fact)) return "line " GPU_LINE(__LINE__) ": not so: " #fact;                             \
  } while (0)

#endif
