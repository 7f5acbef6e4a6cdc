#include "cuda/kernels/fast/fp8_tiles.cuh"

enum { PITCH = TILE + 4 /* bytes: columns of codes are in different banks */ };

/* Of the tile that begins at (row, column) as stored. */
__device__ static void store_scale(const fp8_weight &w, int64_t row, int64_t column, float scale)
{
  int64_t outer = (w.turned ? column : row) / TILE, inner = (w.turned ? row : column) / TILE;
  int64_t across = (w.inner + TILE - 1) / TILE;
  across = (across + FP8_BLOCK_ROWS - 1) / FP8_BLOCK_ROWS * FP8_BLOCK_ROWS;
  if (w.scaling == FP8_BLOCKS) w.scales[outer * across + inner] = scale;
  if (w.scaling == FP8_TENSOR && outer == 0 && inner == 0) w.scales[0] = scale;
}

template <class T> __global__ void round_tiles(const __grid_constant__ fp8_weight w)
{
  __shared__ uint8_t codes[TILE][PITCH]; /* [outer][inner] */
  float x[PER_THREAD];
  int64_t row = (int64_t)blockIdx.y * TILE, column = (int64_t)blockIdx.x * TILE;
  load_tile<T>(w, row, column, x);
  float factor = factor_of(w, x);
  int c = threadIdx.x % TILE, r = threadIdx.x / TILE;
#pragma unroll
  for (int i = 0; i < PER_THREAD; i++, r += THREADS / TILE)
    codes[w.turned ? c : r][w.turned ? r : c] =
        __nv_cvt_float_to_fp8(x[i] * factor, __NV_SATFINITE, __NV_E4M3);
  if (threadIdx.x == 0) store_scale(w, row, column, 1 / factor);
  __syncthreads();
  int64_t outer = w.turned ? column : row, inner = w.turned ? row : column;
  for (int i = threadIdx.x; i < TILE * TILE / 4; i += THREADS) {
    int o = i / (TILE / 4), n = i % (TILE / 4) * 4;
    if (outer + o < w.outer && inner + n < w.inner)
      *(uint32_t *)(w.codes + (outer + o) * w.inner + inner + n) = *(uint32_t *)&codes[o][n];
  }
}

int64_t fp8_weight_tiles(int64_t outer, int64_t inner)
{
  return (outer + TILE - 1) / TILE * ((inner + TILE - 1) / TILE);
}

template <class T> static void round_weight(const fp8_weight &w, cudaStream_t stream)
{
  if (w.scaling == FP8_TENSOR) find_maxima<T><<<tiles_of(w), THREADS, 0, stream>>>(w);
  round_tiles<T><<<tiles_of(w), THREADS, 0, stream>>>(w);
}

void fp8_round_weight_to(cuda_call *c, const fp8_weight *w)
{
  cudaStream_t stream = (cudaStream_t)c->stream;
  if (c->failure != NULL) return;
  if (w->fp32)
    round_weight<float>(*w, stream);
  else
    round_weight<__nv_bfloat16>(*w, stream);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}
