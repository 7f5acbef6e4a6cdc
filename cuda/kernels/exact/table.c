/* The tables of kernel.h for one of the two compilations: OFFSIM_EXACT_FOR_HOST, or GPUs. */
#include <stddef.h>

#include "cuda/kernels/kernel.h"

#ifdef OFFSIM_EXACT_FOR_HOST
#define EXACT(name) host_exact_##name
#else
#define EXACT(name) cuda_exact_##name
#endif

#define X(id, name, cost, letters, meaning, arithmetic, s, fast)                                   \
  cuda_kernel EXACT(arithmetic);                                                                   \
  cuda_scratch EXACT(s##_scratch);
PLAN_KERNELS(X)
#undef X
#define X(id, name, meaning, arithmetic, s)                                                        \
  cuda_collective EXACT(arithmetic);                                                               \
  cuda_collective_scratch EXACT(s##_group_scratch);
PLAN_COLLECTIVES(X)
#undef X

/* A row without. */
#define cuda_exact_NONE               NULL
#define cuda_exact_NONE_scratch       NULL
#define cuda_exact_NONE_group_scratch NULL
#define host_exact_NONE               NULL
#define host_exact_NONE_scratch       NULL
#define host_exact_NONE_group_scratch NULL

#define X(id, name, cost, letters, meaning, arithmetic, s, fast)                                   \
  [KERNEL_##id] = { .launch = EXACT(arithmetic), .scratch = EXACT(s##_scratch) },
const cuda_kernel_row EXACT(kernels)[KERNEL_KINDS] = { PLAN_KERNELS(X) };
#undef X

#define X(id, name, meaning, arithmetic, s)                                                        \
  [COLLECTIVE_##id] = { .launch = EXACT(arithmetic), .scratch = EXACT(s##_group_scratch) },
const cuda_collective_row EXACT(collectives)[COLLECTIVE_KINDS] = { PLAN_COLLECTIVES(X) };
#undef X
