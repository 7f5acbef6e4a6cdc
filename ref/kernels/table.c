#include "ref/kernels/functions.h"

#include <stddef.h>

#define ref_NONE NULL

#define X(id, name, cost, letters, meaning, arithmetic, ...) [KERNEL_##id] = ref_##arithmetic,
ref_kernel *const ref_kernels[KERNEL_KINDS] = { PLAN_KERNELS(X) };
#undef X

#define X(id, name, meaning, arithmetic, ...) [COLLECTIVE_##id] = ref_##arithmetic,
ref_collective *const ref_collectives[COLLECTIVE_KINDS] = { PLAN_COLLECTIVES(X) };
#undef X
