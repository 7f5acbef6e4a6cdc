/* The elements that dropout keeps: ref/kernels/dropout.h on the device, with its key. */
#ifndef OFFSIM_CUDA_KERNELS_DROPOUT_CUH
#define OFFSIM_CUDA_KERNELS_DROPOUT_CUH

#include "cuda/kernels/for_each.cuh"

extern "C" {
#include "ref/kernels/dropout.h"
}

/* The output function of splitmix64. */
DEVICE static inline uint64_t dropout_mixed(uint64_t z)
{
  z += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

DEVICE static inline bool is_kept(uint64_t key, uint64_t element, double probability)
{
  return (double)(dropout_mixed(key ^ element) >> 11) * 0x1p-53 >= probability;
}

#endif
