/* What the drivers say when something fails: one text for each thread, until it fails again. */
#ifndef OFFSIM_CUDA_DEVICE_FAILURE_H
#define OFFSIM_CUDA_DEVICE_FAILURE_H

const char *gpu_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
