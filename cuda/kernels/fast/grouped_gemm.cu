/*
 * Products of experts by wgmma: a block computes a tile of 192 x 256, each of its three groups of
 * four warps 64 rows of it; a smaller one would wait for the second cache. Tiles of the factors, 64
 * long in K, come by asynchronous copies into a ring of shared memory; while one is multiplied the
 * next two are on their way. Every sum goes by ascending k.
 */
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "cuda/kernels/fast/async_copy.cuh"
#include "cuda/kernels/fast/grouped.h"
#include "cuda/kernels/fast/grouped_spans.cuh"
#include "cuda/kernels/fast/wgmma.cuh"

enum {
  GROUPS = 3,
  THREADS = GROUPS * 128,
  TILE_M = GROUPS * WGMMA_M,
  TILE_N = WGMMA_N,
  TILE_K = PANEL_COLUMNS,
  A_BYTES = TILE_M * TILE_K * 2,
  B_BYTES = TILE_N * TILE_K * 2,
  STAGE_BYTES = A_BYTES + B_BYTES,
  STAGES = 4,
  AHEAD = STAGES - 2, /* the stage before may still be read */
  PIECE = 8,          /* elements that are copied at once */
  PANEL_PIECES = PANEL_COLUMNS / PIECE,
  SHARED_ALIGNMENT = 1024,
  SHARED_BYTES = STAGES * STAGE_BYTES + SHARED_ALIGNMENT
};

/* A factor in device memory, as stored: rows of `columns`; what is outside is 0. */
typedef struct factor {
  const __nv_bfloat16 *data;
  int64_t stride;
  int32_t rows, columns;
} factor;

/* A tile of a result. */
typedef struct tile_work {
  factor a, b;
  int32_t m0, n0, m, n, k; /* where it begins; sizes of the product */
  void *c;
  const __nv_bfloat16 *bias; /* NULL: none */
  int64_t c_stride;
  bool adds; /* to what is there */
} tile_work;

/* ROWS x COLUMNS elements from (row, column) on, in panels of 64 columns. A thread copies pieces of
 * one column, some rows apart. */
template <int ROWS, int COLUMNS>
__device__ static void fetch(const factor &f, int32_t row, int32_t column, uint32_t to)
{
  const uint32_t across = COLUMNS / PIECE, down = THREADS / across;
  uint32_t q = threadIdx.x % across, r = threadIdx.x / across;
  int32_t rows = f.rows - row;
  bool inside = column + (int32_t)q * PIECE < f.columns;
  const __nv_bfloat16 *from = f.data + (row + (int64_t)r) * f.stride + column + q * PIECE;
  to += q / PANEL_PIECES * ROWS * PANEL_ROW_BYTES;
#pragma unroll
  for (uint32_t i = 0; i < (ROWS + down - 1) / down; i++, r += down, from += down * f.stride)
    if (ROWS % down == 0 || r < ROWS)
      copy_16(to + swizzled_place(r, q % PANEL_PIECES), from, inside && (int32_t)r < rows);
}

template <int A_TURNED, int B_TURNED>
__device__ static void fetch_stage(const tile_work &w, int32_t step, uint32_t shared)
{
  int32_t k = step * TILE_K;
  uint32_t to = shared + step % STAGES * STAGE_BYTES;
  if (A_TURNED)
    fetch<TILE_K, TILE_M>(w.a, k, w.m0, to);
  else
    fetch<TILE_M, TILE_K>(w.a, w.m0, k, to);
  if (B_TURNED)
    fetch<TILE_K, TILE_N>(w.b, k, w.n0, to + A_BYTES);
  else
    fetch<TILE_N, TILE_K>(w.b, w.n0, k, to + A_BYTES);
}

template <int A_TURNED, int B_TURNED>
__device__ static void multiply_stage(float (&sums)[WGMMA_SUMS], int group, uint32_t at)
{
  const uint32_t panel = TILE_K * PANEL_ROW_BYTES; /* of a turned factor */
  const uint32_t turned_step = WGMMA_K * PANEL_ROW_BYTES, step = WGMMA_K * 2;
  uint32_t a = at + (uint32_t)group * WGMMA_M * PANEL_ROW_BYTES, b = at + A_BYTES;
  static_assert(WGMMA_M == TILE_K,
                "a group's panel of A begins at the same place, transposed or not");
#pragma unroll
  for (uint32_t i = 0; i < TILE_K / WGMMA_K; i++)
    wgmma_multiply<A_TURNED, B_TURNED>(
        sums, panel_descriptor(a + i * (A_TURNED ? turned_step : step), panel),
        panel_descriptor(b + i * (B_TURNED ? turned_step : step), panel));
}

template <int A_TURNED, int B_TURNED>
__device__ static void multiply_tile(const tile_work &w, float (&sums)[WGMMA_SUMS], uint32_t shared)
{
  int32_t steps = (w.k + TILE_K - 1) / TILE_K;
  for (int32_t i = 0; i < AHEAD; i++) {
    if (i < steps) fetch_stage<A_TURNED, B_TURNED>(w, i, shared);
    copy_commit();
  }
  for (int32_t i = 0; i < steps; i++) {
    copy_wait<AHEAD - 1>();
    show_to_wgmma();
    __syncthreads();
    wgmma_begin();
    multiply_stage<A_TURNED, B_TURNED>(sums, (int)threadIdx.x / 128,
                                       shared + i % STAGES * STAGE_BYTES);
    wgmma_commit();
    if (i + AHEAD < steps) fetch_stage<A_TURNED, B_TURNED>(w, i + AHEAD, shared);
    copy_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
}

/* ---- the result ---- */

__device__ static float2 load_pair(const __nv_bfloat16 *p)
{
  return __bfloat1622float2(*(const __nv_bfloat162 *)p);
}

__device__ static float2 load_pair(const float *p)
{
  return *(const float2 *)p;
}

__device__ static void store_pair(__nv_bfloat16 *p, float2 x)
{
  *(__nv_bfloat162 *)p = __float22bfloat162_rn(x);
}

__device__ static void store_pair(float *p, float2 x)
{
  *(float2 *)p = x;
}

/* What is added to the pair of sums that begins at (r, c). */
template <class T> __device__ static float2 addend_at(const tile_work &w, int32_t r, int32_t c)
{
  if (r >= w.m || c >= w.n) return make_float2(0, 0);
  if (w.adds) return load_pair((const T *)w.c + r * w.c_stride + c);
  return w.bias != NULL ? load_pair(w.bias + c) : make_float2(0, 0);
}

/* A thread's sums: of rows r and r + 8, pairs of columns 8 apart. Addends are loaded some at a
 * time: a store would have the next load wait. */
template <class T>
__device__ static void store_tile(const tile_work &w, const float (&sums)[WGMMA_SUMS])
{
  const int at_once = 8;
  int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int32_t row = w.m0 + warp * 16 + lane / 4, column = w.n0 + lane % 4 * 2;
#pragma unroll
  for (int first = 0; first < WGMMA_SUMS / 2; first += at_once) {
    float2 more[at_once];
#pragma unroll
    for (int i = 0; i < at_once; i++)
      more[i] = addend_at<T>(w, row + i % 2 * 8, column + (first + i) / 2 * 8);
#pragma unroll
    for (int i = 0; i < at_once; i++) {
      int32_t r = row + i % 2 * 8, c = column + (first + i) / 2 * 8, at = 2 * (first + i);
      float2 x = make_float2(sums[at] + more[i].x, sums[at + 1] + more[i].y);
      if (r < w.m && c < w.n) store_pair((T *)w.c + r * w.c_stride + c, x);
    }
  }
}

/* ---- which tile ---- */

/* The expert whose tile of rows it is; experts: rows of none; one more: none. */
__device__ static int32_t expert_of(const expert_table *table, int32_t experts, int32_t tile)
{
  __shared__ int32_t found;
  if (threadIdx.x == 0) found = experts + 1;
  __syncthreads();
  for (int32_t e = (int32_t)threadIdx.x; e <= experts; e += THREADS)
    if (tile >= table->spans[e].first_tile && tile < table->spans[e + 1].first_tile) found = e;
  __syncthreads();
  return found;
}

/* Tiles of an expert's rows go first, then columns: weights are read once. */
__device__ static bool find_rows(const grouped_product &p, const expert_table *table, tile_work *w)
{
  int32_t across = (p.n + TILE_N - 1) / TILE_N;
  int32_t all = (int32_t)(gridDim.x / across);
  /* By columns within a run of tiles of rows; `all` is at least as many as there are. */
  int32_t tile = (int32_t)blockIdx.x % all, column = (int32_t)blockIdx.x / all;
  int32_t e = expert_of(table, p.experts, tile);
  if (e > p.experts || (e < p.experts ? p.of_expert[e] == NULL : p.leaves_rest)) return false;
  expert_span s = table->spans[e];
  const __nv_bfloat16 *weight = (const __nv_bfloat16 *)(e < p.experts ? p.of_expert[e] : p.a);
  bool turned = p.layout == GEMM_NN;
  *w = tile_work{};
  w->a = factor{ (const __nv_bfloat16 *)p.a + s.first * p.a_stride, p.a_stride, s.count, p.k };
  w->b = factor{ weight, p.expert_stride, turned ? p.k : p.n, turned ? p.n : p.k };
  w->m0 = (tile - s.first_tile) * TILE_M;
  w->n0 = column * TILE_N;
  w->m = s.count;
  w->n = p.n;
  w->k = e < p.experts ? p.k : 0;
  w->c_stride = p.c_stride;
  int64_t place = s.first * p.c_stride;
  w->c = p.result_fp32 ? (void *)((float *)p.c + place) : (void *)((__nv_bfloat16 *)p.c + place);
  if (p.has_bias && e < p.experts) w->bias = (const __nv_bfloat16 *)p.bias[e];
  return true;
}

__device__ static bool find_weights(const grouped_product &p, const expert_table *table,
                                    tile_work *w)
{
  int32_t down = (p.m + TILE_M - 1) / TILE_M;
  int32_t e = (int32_t)blockIdx.y, tile = (int32_t)blockIdx.x;
  expert_span s = table->spans[e];
  *w = tile_work{};
  w->a = factor{ (const __nv_bfloat16 *)p.a + s.first * p.a_stride, p.a_stride, s.count, p.m };
  w->b = factor{ (const __nv_bfloat16 *)p.b + s.first * p.b_stride, p.b_stride, s.count, p.n };
  w->m0 = tile % down * TILE_M;
  w->n0 = tile / down * TILE_N;
  w->m = p.m;
  w->n = p.n;
  w->k = s.count;
  w->c_stride = p.expert_stride;
  w->c = p.of_expert[e];
  w->adds = p.adds;
  return true;
}

template <int A_TURNED, int B_TURNED, class T>
__global__ void __launch_bounds__(THREADS, 1)
    grouped_kernel(const __grid_constant__ grouped_product p, const expert_table *table)
{
  extern __shared__ uint8_t memory[];
  uint32_t shared =
      (shared_address(memory) + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
  tile_work w;
  if (!(A_TURNED ? find_weights(p, table, &w) : find_rows(p, table, &w))) return;
  float sums[WGMMA_SUMS];
#pragma unroll
  for (int i = 0; i < WGMMA_SUMS; i++)
    sums[i] = 0;
  multiply_tile<A_TURNED, B_TURNED>(w, sums, shared);
  store_tile<T>(w, sums);
}

/* ---- launching ---- */

typedef void grouped_function(grouped_product p, const expert_table *table);

template <class T> static grouped_function *function_of(gemm_layout layout)
{
  switch (layout) {
  case GEMM_NT: return grouped_kernel<0, 0, T>;
  case GEMM_NN: return grouped_kernel<0, 1, T>;
  default: return grouped_kernel<1, 1, T>;
  }
}

static dim3 grid_of(const grouped_product *p)
{
  int64_t across = (p->n + TILE_N - 1) / TILE_N;
  if (p->layout == GEMM_TN)
    return dim3((unsigned)((p->m + TILE_M - 1) / TILE_M * across), (unsigned)p->experts);
  int64_t most = (p->rows + TILE_M - 1) / TILE_M + p->experts + 1;
  return dim3((unsigned)(most * across));
}

int64_t fast_grouped_scratch(void)
{
  return sizeof(expert_table);
}

void fast_grouped_multiply(cuda_call *c, const grouped_product *p)
{
  grouped_function *function =
      p->result_fp32 ? function_of<float>(p->layout) : function_of<__nv_bfloat16>(p->layout);
  cudaError_t error =
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
  expert_table *table = (expert_table *)c->scratch;
  if (c->failure != NULL) return;
  if (error == cudaSuccess) {
    fill_expert_table(c, p, TILE_M, table);
    function<<<grid_of(p), THREADS, SHARED_BYTES, (cudaStream_t)c->stream>>>(*p, table);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}
