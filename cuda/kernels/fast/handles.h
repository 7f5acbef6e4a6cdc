/* The handles of cuda_libraries, for kernels. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_HANDLES_H
#define OFFSIM_CUDA_KERNELS_FAST_HANDLES_H

#include "cuda/kernels/fast/cublaslt.h"
#include "cuda/kernels/fast/cudnn_backend.h"
#include "cuda/kernels/fast/libraries.h"

/* What a family of kernels remembers. The kernels make it when they first need it, and set how to
 * release it. */
typedef struct kernel_memory {
  void *items; /* NULL: nothing yet */
  void (*release)(cuda_libraries *l, void *items);
} kernel_memory;

struct cuda_libraries {
  const cublaslt_functions *cublaslt;
  cublasLtHandle_t cublaslt_handle;
#ifdef OFFSIM_WITH_CUDNN
  const cudnn_functions *cudnn; /* NULL: there is none */
  cudnnHandle_t cudnn_handle;
#endif
  kernel_memory products, attention;
};

#endif
