/*
 * Rows, each by a group of threads: part of a warp, or a block. A row is cut into vectors of V
 * elements; thread `lane` of the group has those of number lane, lane + group, ... Sums over a
 * group go along a tree that depends on its size alone.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ROWS_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ROWS_CUH

#include "cuda/kernels/fast/layout.cuh"

enum { ROWS_WARP = 32, ROWS_MOST_THREADS = 512, ROWS_SMALL_BLOCK = 256 };

struct row_groups {
  uint32_t rows;
  int32_t columns; /* of a row */
  int32_t vectors; /* of a row */
  int32_t group;   /* threads: a power of two up to a warp, else warps */
};

/* `each` vectors for each thread, as long as there are threads. */
static inline row_groups row_groups_of(int64_t rows, int64_t columns, int v, int each)
{
  row_groups g = { (uint32_t)rows, (int32_t)columns, (int32_t)(columns / v), 1 };
  int32_t wanted = (g.vectors + each - 1) / each;
  while (g.group < wanted && g.group < ROWS_WARP)
    g.group *= 2;
  if (g.group < wanted) g.group = (wanted + ROWS_WARP - 1) / ROWS_WARP * ROWS_WARP;
  if (g.group > ROWS_MOST_THREADS) g.group = ROWS_MOST_THREADS;
  return g;
}

static inline __host__ __device__ int rows_per_block(int32_t group)
{
  return group > ROWS_WARP ? 1 : ROWS_SMALL_BLOCK / group;
}

static inline uint32_t threads_per_block(int32_t group)
{
  return (uint32_t)(group > ROWS_WARP ? group : ROWS_SMALL_BLOCK);
}

struct add_numbers {
  static __device__ inline float of(float a, float b)
  {
    return a + b;
  }
};

struct larger_number {
  static __device__ inline float of(float a, float b)
  {
    return fmaxf(a, b);
  }
};

/* N numbers of each thread, joined over its group; every thread of the block takes part. */
template <class F, int N> static __device__ inline void group_reduce(int32_t group, float *x)
{
  __shared__ float parts[N][ROWS_WARP];
  int32_t width = group < ROWS_WARP ? group : ROWS_WARP;
  for (int32_t step = width / 2; step > 0; step /= 2)
#pragma unroll
    for (int k = 0; k < N; k++)
      x[k] = F::of(x[k], __shfl_xor_sync(0xffffffffU, x[k], step));
  if (group <= ROWS_WARP) return;
  int32_t warps = group / ROWS_WARP;
  if (threadIdx.x % ROWS_WARP == 0)
#pragma unroll
    for (int k = 0; k < N; k++)
      parts[k][threadIdx.x / ROWS_WARP] = x[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; k++) {
    x[k] = parts[k][0];
    for (int32_t w = 1; w < warps; w++)
      x[k] = F::of(x[k], parts[k][w]);
  }
  __syncthreads();
}

template <class F> static __device__ inline float group_reduce(int32_t group, float x)
{
  group_reduce<F, 1>(group, &x);
  return x;
}

#endif
