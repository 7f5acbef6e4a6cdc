/*
 * cuBLASLt and cuDNN for the fast kernels of one rank. Both are opened when the first rank asks for
 * them (cuda/libraries/library.h); cuDNN may be missing, kernels that would use it then do without.
 *
 * A rank has handles of its own, which only its host thread uses, and what its kernels remember
 * from call to call: products whose algorithm has been chosen, and graphs of cuDNN that have been
 * built. What is remembered only saves time: it depends on nothing but the calls.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_LIBRARIES_H
#define OFFSIM_CUDA_KERNELS_FAST_LIBRARIES_H

#include "cuda/kernels/kernel.h"
#include "sim/base/diag.h"

/* For the device that the calling thread uses. NULL after a diag error (status 3). */
cuda_libraries *cuda_libraries_new(diag *d);
void cuda_libraries_release(cuda_libraries *l); /* may be NULL */

#endif
