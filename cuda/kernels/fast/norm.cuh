/* What the kernels of RMSNorm and LayerNorm share. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_NORM_CUH
#define OFFSIM_CUDA_KERNELS_FAST_NORM_CUH

#include "cuda/kernels/fast/rows.cuh"

enum { NORM_EACH = 2, NORM_MOST_EACH = 4 }; /* vectors of a thread */

static inline int64_t norm_most_columns(int v)
{
  return (int64_t)ROWS_MOST_THREADS * NORM_MOST_EACH * v;
}

/* `rows` units of `columns` elements, read `v` at a time. */
static inline bool norm_rows(const tensor &t, int64_t rows, int64_t columns, int v, layout *l)
{
  return is_number(t) && elements_of(t) == rows * columns && layout_of(t, columns, v, l);
}

#endif
