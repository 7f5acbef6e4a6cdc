/* What the kernels of RMSNorm and LayerNorm share. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_NORM_CUH
#define OFFSIM_CUDA_KERNELS_FAST_NORM_CUH

#include "cuda/kernels/fast/rows.cuh"

enum { NORM_EACH = 2, NORM_MOST_EACH = 4 }; /* vectors of a thread */

static inline int64_t norm_most_columns(int v)
{
  return (int64_t)ROWS_MOST_THREADS * NORM_MOST_EACH * v;
}

#endif
