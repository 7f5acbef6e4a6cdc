#include "ref/kernels/functions.h"

#define X(row, function) [KERNEL_##row] = function,
ref_kernel *const ref_kernels[KERNEL_KINDS] = { REF_KERNELS(X) };
#undef X

#define X(row, function) [COLLECTIVE_##row] = function,
ref_collective *const ref_collectives[COLLECTIVE_KINDS] = { REF_COLLECTIVES(X) };
#undef X
