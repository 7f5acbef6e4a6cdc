/*
 * Sums over rows in two stages: blocks sum rows of their own and leave one partial row each; then
 * every column's partial sums are added along a tree. How many blocks there are depends on shapes
 * alone, so sums have the same bits on every GPU.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_COLUMNS_CUH
#define OFFSIM_CUDA_KERNELS_FAST_COLUMNS_CUH

#include "cuda/kernels/fast/layout.cuh"

#ifdef __cplusplus
extern "C" {
#endif

enum { COLUMNS_PROCESSORS = 132 }; /* blocks are a multiple of it: an H100's or H200's */

/* partials[rows][columns] to the sums of columns, written to `to`, which is contiguous. */
void fast_add_partials(cuda_call *c, const float *partials, int64_t rows, int64_t columns,
                       const tensor *to);

#ifdef __cplusplus
}
#endif

#endif
