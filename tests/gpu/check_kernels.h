/* Kernels for the checks of this folder. */
#ifndef OFFSIM_TESTS_GPU_CHECK_KERNELS_H
#define OFFSIM_TESTS_GPU_CHECK_KERNELS_H

#include "cuda/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps one block of the GPU busy; the three are the same, but each is loaded by its own first
 * launch. */
enum { SPIN_KERNELS = 3 };
void launch_spin(int which, int64_t ns, gpu_stream *stream);

/* As libraries do that call the driver themselves; NULL: it was launched. */
const char *launch_spin_by_driver(int64_t ns, gpu_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
