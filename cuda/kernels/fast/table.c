#include "cuda/kernels/fast/functions.h"

#define FAST_NONE          .launch = NULL
#define FAST_PLAIN(name)   .suits = fast_suits_##name, .launch = fast_##name
#define FAST_SCRATCH(name) FAST_PLAIN(name), .scratch = fast_scratch_##name
#define FAST_LIBRARY(name) FAST_SCRATCH(name), .by_library = true

#define X(id, name, cost, letters, meaning, arithmetic, scratch, fast)                             \
  [KERNEL_##id] = { FAST_##fast },
const cuda_fast_row cuda_fast_kernels[KERNEL_KINDS] = { PLAN_KERNELS(X) };
