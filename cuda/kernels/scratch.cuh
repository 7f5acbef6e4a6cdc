/*
 * Scratch memory cut into arrays. The same function cuts it when a call is launched and when the
 * table only counts what it needs: then there is no memory, and the result is `used`.
 */
#ifndef OFFSIM_CUDA_KERNELS_SCRATCH_CUH
#define OFFSIM_CUDA_KERNELS_SCRATCH_CUH

#include <assert.h>

#include "cuda/kernels/kernel.h"

typedef struct scratch_arena {
  uintptr_t memory;
  int64_t used;
} scratch_arena;

static inline scratch_arena arena_of(const cuda_call *c)
{
  scratch_arena a = { (uintptr_t)c->scratch, 0 };
  return a;
}

static inline scratch_arena arena_of_nothing(void)
{
  scratch_arena a = { 0, 0 };
  return a;
}

/* Room for `count` of T, 256-byte aligned; not set. */
template <class T> T *take(scratch_arena *a, int64_t count)
{
  const int64_t alignment = 256;
  T *memory = (T *)(a->memory + (uintptr_t)a->used);
  a->used += (count * (int64_t)sizeof(T) + alignment - 1) / alignment * alignment;
  return memory;
}

#endif
