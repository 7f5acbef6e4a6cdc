/* The drivers' failure texts: one for each thread, until its next failure. */
#ifndef OFFSIM_CUDA_DEVICE_FAILURE_H
#define OFFSIM_CUDA_DEVICE_FAILURE_H

const char *gpu_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
