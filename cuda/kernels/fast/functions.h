/* The functions that sim/plan/kernels.h names for fast arithmetic. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FUNCTIONS_H
#define OFFSIM_CUDA_KERNELS_FAST_FUNCTIONS_H

#include "cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef bool fast_suits(const exec_call *c);

/* clang-format off */
#define FAST_NONE
#define FAST_PLAIN(name)   cuda_kernel fast_##name; fast_suits fast_suits_##name;
#define FAST_SCRATCH(name) FAST_PLAIN(name) cuda_scratch fast_scratch_##name;
#define FAST_LIBRARY(name) FAST_SCRATCH(name)
/* clang-format on */
#define X(id, name, cost, letters, meaning, arithmetic, scratch, fast) FAST_##fast
PLAN_KERNELS(X)
#undef X
#undef FAST_NONE
#undef FAST_PLAIN
#undef FAST_SCRATCH
#undef FAST_LIBRARY

#ifdef __cplusplus
}
#endif

#endif
