#include "cuda/kernels/fast/functions.h"

#define KERNEL(row, name)                                                                          \
  [KERNEL_##row].suits = fast_suits_##name, [KERNEL_##row].launch = fast_##name,
#define SCRATCH(row, name) [KERNEL_##row].scratch = fast_scratch_##name,
#define BY_LIBRARY(row)    [KERNEL_##row].by_library = true,

const cuda_fast_row cuda_fast_kernels[KERNEL_KINDS] = { FAST_KERNELS(KERNEL) FAST_SCRATCH(SCRATCH)
                                                            FAST_BY_LIBRARY(BY_LIBRARY) };
