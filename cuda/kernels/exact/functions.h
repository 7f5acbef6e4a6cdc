/*
 * Which rows of the plan's tables have exact arithmetic for GPUs, and the functions of each: one that
 * launches, and one that says how much scratch memory it needs (NULL: none). In the order of
 * ref/kernels/functions.h.
 */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_FUNCTIONS_H
#define OFFSIM_CUDA_KERNELS_EXACT_FUNCTIONS_H

#include "cuda/kernels/kernel.h"

/* clang-format off */
#define EXACT_KERNELS(X)                     \
  X(ADD,                       add)          \
  X(ADD_STRIDED,               add)

/* Those that need scratch: the row, and its function of type cuda_scratch. */
#define EXACT_SCRATCH(X)

#define EXACT_COLLECTIVES(X) X(ALL_GATHER, all_gather)
/* clang-format on */

#endif
