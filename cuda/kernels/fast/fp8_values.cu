#include "cuda/kernels/fast/fp8_values.h"

#include "cuda/kernels/fast/fp8_tiles.cuh"

__device__ static float number_of(uint8_t code, bool e5m2)
{
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, e5m2 ? __NV_E5M2 : __NV_E4M3)));
}

/* 2^(exponent - 127). */
__device__ static float of_exponent(uint32_t exponent)
{
  if (exponent == 0xff) return __uint_as_float(0x7fc00000);
  return __uint_as_float(exponent > 0 ? exponent << 23 : 1U << 22);
}

/* ---- copies ---- */

__device__ static float scale_of(const fp8_source &s, int64_t outer, int64_t inner)
{
  const uint8_t *scales = s.data + s.outer * s.inner;
  if (s.scaling == FP8_MX)
    return of_exponent(scales[outer * ((s.inner / FP8_MX_BLOCK + (s.inner % FP8_MX_BLOCK > 0) +
                                        FP8_MX_TILE_INNER - 1) /
                                       FP8_MX_TILE_INNER * FP8_MX_TILE_INNER) +
                              inner / FP8_MX_BLOCK]);
  if (s.scaling == FP8_TENSOR) return *(const float *)scales;
  if (s.scaling != FP8_BLOCKS) return 1;
  int64_t across = (s.outer + FP8_BLOCK_ROWS - 1) / FP8_BLOCK_ROWS * FP8_BLOCK_ROWS;
  return ((const float *)scales)[inner / FP8_BLOCK * across + outer];
}

/* Tiles of 32 x 32, by 32 x 8 threads; turned ones go through shared memory. */
enum { SMALL_TILE = 32, SMALL_ROWS = 8 };

__global__ void values_kernel(const __grid_constant__ fp8_source s)
{
  __shared__ float tile[SMALL_TILE][SMALL_TILE + 1];
  int64_t outer = (int64_t)blockIdx.y * SMALL_TILE, inner = (int64_t)blockIdx.x * SMALL_TILE;
  __nv_bfloat16 *to = (__nv_bfloat16 *)s.to;
  int x = (int)threadIdx.x;
  for (int y = (int)threadIdx.y; y < SMALL_TILE; y += SMALL_ROWS) {
    if (outer + y >= s.outer || inner + x >= s.inner) continue;
    uint8_t code = s.data[(outer + y) * s.inner + inner + x];
    float number = number_of(code, s.e5m2) * scale_of(s, outer + y, inner + x);
    if (s.turned)
      tile[y][x] = number;
    else
      to[(outer + y) * s.inner + inner + x] = __float2bfloat16_rn(number);
  }
  if (!s.turned) return;
  __syncthreads();
  for (int y = (int)threadIdx.y; y < SMALL_TILE; y += SMALL_ROWS)
    if (inner + y < s.inner && outer + x < s.outer)
      to[(inner + y) * s.outer + outer + x] = __float2bfloat16_rn(tile[x][y]);
}

void fp8_values_of(cuda_call *c, const fp8_source *s)
{
  dim3 grid((unsigned)((s->inner + SMALL_TILE - 1) / SMALL_TILE),
            (unsigned)((s->outer + SMALL_TILE - 1) / SMALL_TILE));
  if (c->failure != NULL) return;
  values_kernel<<<grid, dim3(SMALL_TILE, SMALL_ROWS), 0, (cudaStream_t)c->stream>>>(*s);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

/* ---- weights ---- */

/* ref/kernels/fp8.c, exponent_above: of the power of two at or above x. */
__device__ static uint32_t exponent_above(float x)
{
  if (isnan(x)) return 0xff;
  if (isinf(x)) return 0xfe;
  uint32_t bits = __float_as_uint(x), exponent = bits >> 23, mantissa = bits & 0x7fffff;
  bool up = mantissa > 0 && exponent != 0xfe && !(exponent == 0 && mantissa <= 0x400000);
  return exponent + up;
}

/* Of blocks of 32 along a row: a warp has 32 elements that follow each other. */
__device__ static void magnitudes_along(const float *x, float *magnitudes)
{
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++) {
    float m = fabsf(x[i]);
    for (int step = FP8_MX_BLOCK / 2; step > 0; step /= 2)
      m = fmaxf(m, __shfl_xor_sync(0xffffffffU, m, step));
    magnitudes[i] = m;
  }
}

/* ... along a column: two threads have the 32 elements of a block, every other one. */
__device__ static void magnitudes_down(const float *x, float *magnitudes)
{
  const int lanes = THREADS / TILE, own = FP8_MX_BLOCK / lanes, blocks = PER_THREAD / own;
  __shared__ float most[blocks][lanes][TILE];
  int c = (int)threadIdx.x % TILE, lane = (int)threadIdx.x / TILE;
#pragma unroll
  for (int b = 0; b < blocks; b++) {
    float m = 0;
#pragma unroll
    for (int i = 0; i < own; i++)
      m = fmaxf(m, fabsf(x[b * own + i]));
    most[b][lane][c] = m;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++)
    magnitudes[i] = fmaxf(most[i / own][0][c], most[i / own][1][c]);
}

__device__ static float rounded(float x, float times, float back)
{
  return number_of(__nv_cvt_float_to_fp8(x * times, __NV_SATFINITE, __NV_E4M3), false) * back;
}

__device__ static void round_mx(const fp8_weight &w, float *x)
{
  float magnitudes[PER_THREAD];
  if (w.turned)
    magnitudes_down(x, magnitudes);
  else
    magnitudes_along(x, magnitudes);
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++) {
    float back = of_exponent(exponent_above(magnitudes[i] * (1.0F / 448)));
    x[i] = rounded(x[i], 1 / back, back);
  }
}

template <class T>
__global__ void round_values(const __grid_constant__ fp8_weight w, __nv_bfloat16 *to)
{
  float x[PER_THREAD];
  int64_t rows = w.turned ? w.inner : w.outer, columns = w.turned ? w.outer : w.inner;
  int64_t row = (int64_t)blockIdx.y * TILE, column = (int64_t)blockIdx.x * TILE;
  load_tile<T>(w, row, column, x);
  if (w.scaling == FP8_MX) {
    round_mx(w, x);
  } else {
    float factor = factor_of(w, x), back = 1 / factor;
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++)
      x[i] = rounded(x[i], factor, back);
  }
  int64_t r = row + threadIdx.x / TILE, c = column + threadIdx.x % TILE;
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++, r += THREADS / TILE)
    if (r < rows && c < columns) to[r * columns + c] = __float2bfloat16_rn(x[i]);
}

template <class T>
static void round_all(const fp8_weight &w, __nv_bfloat16 *to, cudaStream_t stream)
{
  if (w.scaling == FP8_TENSOR) find_maxima<T><<<tiles_of(w), THREADS, 0, stream>>>(w);
  round_values<T><<<tiles_of(w), THREADS, 0, stream>>>(w, to);
}

void fp8_round_values(cuda_call *c, const fp8_weight *w, void *to)
{
  cudaStream_t stream = (cudaStream_t)c->stream;
  if (c->failure != NULL) return;
  if (w->fp32)
    round_all<float>(*w, (__nv_bfloat16 *)to, stream);
  else
    round_all<__nv_bfloat16>(*w, (__nv_bfloat16 *)to, stream);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}
