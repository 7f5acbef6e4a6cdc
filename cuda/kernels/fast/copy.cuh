/* Copies of one tensor to another, as part of a kernel. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_COPY_CUH
#define OFFSIM_CUDA_KERNELS_FAST_COPY_CUH

#include "cuda/kernels/fast/layout.cuh"

/* Both have one number of elements. */
extern "C" bool fast_copy_pair_suits(const tensor *from, const tensor *to);
extern "C" void fast_copy_pair(cuda_call *c, const tensor *from, const tensor *to);

/* Columns first .. first + width - 1 of rows that follow each other. */
static inline tensor row_columns(const tensor &t, int64_t rows, int64_t first, int64_t width)
{
  tensor part = t;
  part.data = (char *)t.data + first * size_of(t);
  part.rank = 2;
  part.shape[0] = rows;
  part.shape[1] = width;
  part.strides[0] = elements_of(t) / rows;
  part.strides[1] = 1;
  return part;
}

#endif
