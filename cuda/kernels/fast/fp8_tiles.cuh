/*
 * Tiles of 128 x 128 of a weight, each by a block of threads, and what their numbers are multiplied
 * by before they are rounded to e4m3 (ref/kernels/fp8.c).
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FP8_TILES_CUH
#define OFFSIM_CUDA_KERNELS_FAST_FP8_TILES_CUH

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include "cuda/kernels/fast/fp8_weights.h"

enum { TILE = FP8_WEIGHT_TILE, THREADS = 256, PER_THREAD = TILE * TILE / THREADS };

/* The elements of a tile that are this thread's: of one column, rows THREADS / TILE apart. */
template <class T>
__device__ static void load_tile(const fp8_weight &w, int64_t row, int64_t column, float *x)
{
  int64_t rows = w.turned ? w.inner : w.outer, columns = w.turned ? w.outer : w.inner;
  int64_t c = column + threadIdx.x % TILE, r = row + threadIdx.x / TILE;
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++, r += THREADS / TILE)
    x[i] = r < rows && c < columns ? (float)((const T *)w.data)[r * columns + c] : 0;
}

/* Of all threads' `x`. */
__device__ static float largest_of_block(float x)
{
  __shared__ float largest[THREADS];
  largest[threadIdx.x] = x;
  for (int half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
  }
  __syncthreads();
  return largest[0];
}

__device__ static float largest_of_tile(const float *x)
{
  float largest = 0;
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++)
    largest = fmaxf(largest, fabsf(x[i]));
  return largest_of_block(largest);
}

/* ref/kernels/fp8.c, largest_over: what e4m3's largest number is over a magnitude. */
__device__ static float factor_for(float magnitude)
{
  const float largest = 448, largest_bf16 = __uint_as_float(0x7f7f0000);
  if (magnitude == 0 || isinf(magnitude)) return 1;
  float times = largest / magnitude;
  return isinf(times) ? largest_bf16 : times;
}

__device__ static float power_of_two_in(float x)
{
  return __uint_as_float(__float_as_uint(x) & 0xff800000);
}

/* What the numbers of a tile are multiplied by. */
__device__ static float factor_of(const fp8_weight &w, const float *x)
{
  if (w.scaling == FP8_BLOCKS) return power_of_two_in(factor_for(largest_of_tile(x)));
  if (w.scaling != FP8_TENSOR) return 1;
  float largest = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x * gridDim.y; i += THREADS)
    largest = fmaxf(largest, w.maxima[i]);
  return factor_for(largest_of_block(largest));
}

static inline dim3 tiles_of(const fp8_weight &w)
{
  int64_t rows = w.turned ? w.inner : w.outer, columns = w.turned ? w.outer : w.inner;
  return dim3((unsigned)((columns + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE));
}

template <class T> __global__ void find_maxima(const __grid_constant__ fp8_weight w)
{
  float x[PER_THREAD];
  load_tile<T>(w, (int64_t)blockIdx.y * TILE, (int64_t)blockIdx.x * TILE, x);
  float largest = largest_of_tile(x);
  if (threadIdx.x == 0) w.maxima[blockIdx.y * gridDim.x + blockIdx.x] = largest;
}

#endif
