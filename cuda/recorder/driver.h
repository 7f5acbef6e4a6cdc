/*
 * Functions of the driver that the recorder asks, found when it is loaded; NULL: this driver lacks
 * it.
 */
#ifndef OFFSIM_CUDA_RECORDER_DRIVER_H
#define OFFSIM_CUDA_RECORDER_DRIVER_H

#include <cuda.h>

#define DRIVER_FUNCTIONS(X)                                                                        \
  X(cuFuncGetParamInfo, (CUfunction, size_t, size_t *, size_t *))                                  \
  X(cuKernelGetParamInfo, (CUkernel, size_t, size_t *, size_t *))                                  \
  X(cuStreamGetFlags, (CUstream, unsigned *))                                                      \
  X(cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))

typedef struct driver_functions {
#define X(name, parameters) CUresult(*name) parameters;
  DRIVER_FUNCTIONS(X)
#undef X
} driver_functions;

extern driver_functions driver;

/* Once, before it is used. */
void driver_find(void);

#endif
