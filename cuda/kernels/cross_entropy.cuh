/* Maxima and sums of a row's elements, ascending, for all cross entropies. */
#ifndef OFFSIM_CUDA_KERNELS_CROSS_ENTROPY_CUH
#define OFFSIM_CUDA_KERNELS_CROSS_ENTROPY_CUH

#include "cuda/kernels/operands.cuh"

/* The maximum of `largest` and of `count` elements from `first` on. */
DEVICE static inline float larger_of(float largest, const tensor &x, int64_t first, int64_t count)
{
  for (int64_t i = 0; i < count; i++) {
    float value = load(x, first + i);
    if (value > largest) largest = value;
  }
  return largest;
}

DEVICE static inline float largest_of(const tensor &x, int64_t first, int64_t count)
{
  return larger_of(load(x, first), x, first + 1, count - 1);
}

/* The sum of exp(x - maximum). */
DEVICE static inline float sum_of_exponentials(const tensor &x, int64_t first, int64_t count,
                                               float maximum)
{
  float sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += exact_expf(load(x, first + i) - maximum);
  return sum;
}

#endif
