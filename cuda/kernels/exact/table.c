/* The tables of kernel.h for one of the two compilations: OFFSIM_EXACT_FOR_HOST, or GPUs. */
#include "cuda/kernels/exact/functions.h"

#ifdef OFFSIM_EXACT_FOR_HOST
#define EXACT(name) host_exact_##name
#else
#define EXACT(name) cuda_exact_##name
#endif

#define PROTOTYPE(row, name) cuda_kernel EXACT(name);
EXACT_KERNELS(PROTOTYPE)
#define SCRATCH_PROTOTYPE(row, name) cuda_scratch EXACT(name);
EXACT_SCRATCH(SCRATCH_PROTOTYPE)
#define COLLECTIVE_PROTOTYPE(row, name) cuda_collective EXACT(name);
EXACT_COLLECTIVES(COLLECTIVE_PROTOTYPE)
#define COLLECTIVE_SCRATCH_PROTOTYPE(row, name) cuda_collective_scratch EXACT(name);
EXACT_COLLECTIVE_SCRATCH(COLLECTIVE_SCRATCH_PROTOTYPE)

#define LAUNCH(row, name)  [KERNEL_##row].launch = EXACT(name),
#define SCRATCH(row, name) [KERNEL_##row].scratch = EXACT(name),
const cuda_kernel_row EXACT(kernels)[KERNEL_KINDS] = { EXACT_KERNELS(LAUNCH)
                                                           EXACT_SCRATCH(SCRATCH) };

#define COLLECTIVE(row, name)         [COLLECTIVE_##row].launch = EXACT(name),
#define COLLECTIVE_SCRATCH(row, name) [COLLECTIVE_##row].scratch = EXACT(name),
const cuda_collective_row EXACT(collectives)[COLLECTIVE_KINDS] = {
  EXACT_COLLECTIVES(COLLECTIVE) EXACT_COLLECTIVE_SCRATCH(COLLECTIVE_SCRATCH)
};
