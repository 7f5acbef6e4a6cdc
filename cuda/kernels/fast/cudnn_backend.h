/* The functions of cuDNN that we call: those of its graphs. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_CUDNN_BACKEND_H
#define OFFSIM_CUDA_KERNELS_FAST_CUDNN_BACKEND_H

#include "cuda/libraries/library.h"

/* Not every CUDA toolkit brings cuDNN's headers. */
#if __has_include(<cudnn_graph.h>)
#define OFFSIM_WITH_CUDNN

#include <cudnn_graph.h>

#define CUDNN_FUNCTIONS(X)                                                                         \
  X(cudnnCreate)                                                                                   \
  X(cudnnDestroy)                                                                                  \
  X(cudnnSetStream)                                                                                \
  X(cudnnGetVersion)                                                                               \
  X(cudnnGetErrorString)                                                                           \
  X(cudnnGetLastErrorString)                                                                       \
  X(cudnnBackendCreateDescriptor)                                                                  \
  X(cudnnBackendDestroyDescriptor)                                                                 \
  X(cudnnBackendSetAttribute)                                                                      \
  X(cudnnBackendGetAttribute)                                                                      \
  X(cudnnBackendFinalize)                                                                          \
  X(cudnnBackendExecute)

typedef struct cudnn_functions {
  CUDNN_FUNCTIONS(LIBRARY_FUNCTION)
} cudnn_functions;

#endif

#endif
