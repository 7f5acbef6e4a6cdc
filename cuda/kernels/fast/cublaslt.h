/* The functions of cuBLASLt that we call. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_CUBLASLT_H
#define OFFSIM_CUDA_KERNELS_FAST_CUBLASLT_H

#include <cublasLt.h>

#include "cuda/libraries/library.h"

#define CUBLASLT_FUNCTIONS(X)                                                                      \
  X(cublasLtCreate)                                                                                \
  X(cublasLtDestroy)                                                                               \
  X(cublasLtGetStatusString)                                                                       \
  X(cublasLtMatmul)                                                                                \
  X(cublasLtMatmulAlgoGetHeuristic)                                                                \
  X(cublasLtMatmulDescCreate)                                                                      \
  X(cublasLtMatmulDescDestroy)                                                                     \
  X(cublasLtMatmulDescSetAttribute)                                                                \
  X(cublasLtMatmulPreferenceCreate)                                                                \
  X(cublasLtMatmulPreferenceDestroy)                                                               \
  X(cublasLtMatmulPreferenceSetAttribute)                                                          \
  X(cublasLtMatrixLayoutCreate)                                                                    \
  X(cublasLtMatrixLayoutDestroy)                                                                   \
  X(cublasLtMatrixLayoutSetAttribute)

typedef struct cublaslt_functions {
  CUBLASLT_FUNCTIONS(LIBRARY_FUNCTION)
} cublaslt_functions;

#endif
