/* Attention forward: a block of threads has some queries of a head and goes over their keys. */
#include <math.h>

#include "cuda/kernels/fast/attention_own.h"
#include "cuda/kernels/fast/attention_tile.cuh"

/* Columns; keys at a time; groups of four warps, of 64 queries each. */
template <int QK_, int V_, int KEYS_, int GROUPS_> struct forward_sizes {
  static const int QK = QK_, V = V_, KEYS = KEYS_, THREADS = GROUPS_ * GROUP;
  static const int QUERIES = GROUPS_ * GROUP_ROWS;
  typedef tile<QUERIES, QK> query_tile;
  typedef tile<KEYS, QK> key_tile;
  typedef tile<KEYS, V> value_tile;
  static const int STAGES = 3, STAGE_BYTES = key_tile::bytes + value_tile::bytes;
  static const int SHARED_BYTES = query_tile::bytes + STAGES * STAGE_BYTES + TILE_ALIGNMENT;
};

/* Shared memory: queries, then stages of keys and values. */
template <class Z> struct forward_tiles {
  uint32_t begin;

  __device__ typename Z::query_tile query() const
  {
    return { begin };
  }

  __device__ typename Z::key_tile key(int stage) const
  {
    return { begin + Z::query_tile::bytes + stage * Z::STAGE_BYTES };
  }

  __device__ typename Z::value_tile value(int stage) const
  {
    return { key(stage).address + Z::key_tile::bytes };
  }
};

/* What a thread knows of its two rows: of its warp's 16, lane / 4 and 8 further. */
template <class Z> struct forward_state {
  float output[Z::V / 8][4];
  float most[2], sum[2]; /* of scores, times factor; of this thread's exponentials */
  float factor;          /* scores are multiplied by, in powers of two */
};

__device__ static inline float most_of_row(float x)
{
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ static inline float sum_of_row(float x)
{
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

/* Turns scores into exponentials. Earlier sums have to be multiplied by `shrink`: this function
 * multiplies the sums of exponentials, its caller the output. */
template <class Z>
__device__ void take_softmax(forward_state<Z> &s, float (&scores)[Z::KEYS / 8][4],
                             float (&shrink)[2])
{
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < Z::KEYS / 8; n++)
      most = fmaxf(most, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
    most = fmaxf(s.most[half], most_of_row(most) * s.factor);
    shrink[half] = power_of_two(s.most[half] - most);
#pragma unroll
    for (int n = 0; n < Z::KEYS / 8; n++)
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; i++) {
        scores[n][i] = power_of_two(fmaf(scores[n][i], s.factor, -most));
        sum += scores[n][i];
      }
    s.sum[half] = s.sum[half] * shrink[half] + sum;
    s.most[half] = most;
  }
}

template <class Z> __device__ void multiply_output(forward_state<Z> &s, const float (&by)[2])
{
#pragma unroll
  for (int n = 0; n < Z::V / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      s.output[n][i] *= by[i / 2];
}

/* Hides the scores of keys from `key` on that a query does not see, or that do not exist. `row`:
 * this thread's first. */
template <class Z>
__device__ void hide(float (&scores)[Z::KEYS / 8][4], int key, int keys, int row, bool causal)
{
  int column = key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < Z::KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int k = column + n * 8 + i % 2, q = row + i / 2 * 8;
      if (k >= keys || (causal && k > q)) scores[n][i] = -INFINITY;
    }
}

template <class Z>
__device__ void finish(forward_state<Z> &s, const attention_shape &a, unsigned char *shared,
                       typename Z::query_tile t, int query, int64_t batch, int64_t head)
{
  int row = threadIdx.x / WARP * 16, lane = threadIdx.x % WARP;
  float whole[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = sum_of_row(s.sum[half]);
    int q = query + row + half * 8 + lane / 4;
    whole[half] = 1 / sum;
    if (lane % 4 == 0 && q < a.queries)
      a.log_sums[(batch * a.heads + head) * a.queries + q] =
          (s.most[half] + log2f(sum)) * (float)M_LN2;
  }
  multiply_output<Z>(s, whole);
  __syncthreads();
  store_rows<Z::V>(s.output, 1, shared, t, row,
                   rows_of(a.operands[FORWARD_OUTPUT], batch, head, a.queries), query + row);
}

template <class Z>
__device__ void start_scores(float (&scores)[Z::KEYS / 8][4], const forward_tiles<Z> &t, int stage)
{
  hold(scores);
  wgmma_begin();
  multiply_rows<Z::KEYS>(scores, t.query(), threadIdx.x / GROUP * GROUP_ROWS, t.key(stage));
  wgmma_commit();
}

template <class Z>
__device__ void start_output(forward_state<Z> &s, uint32_t (&weights)[Z::KEYS / 16][4],
                             const forward_tiles<Z> &t, int stage)
{
  hold(s.output);
  hold(weights);
  wgmma_begin();
  add_product<Z::V, Z::KEYS>(s.output, weights, t.value(stage));
  wgmma_commit();
}

/* The last queries, which see most keys, first. While a block's exponentials are taken the values
 * of the one before are multiplied and the next one is loaded. */
template <class Z>
__global__ void __launch_bounds__(Z::THREADS, 1) attention_forward_kernel(attention_shape a)
{
  extern __shared__ unsigned char shared[];
  forward_tiles<Z> t = { aligned_tiles(shared) };
  int64_t head = blockIdx.x % a.heads, batch = blockIdx.x / a.heads;
  int64_t kv_head = head / (a.heads / a.kv_heads);
  int query = (int)(gridDim.y - 1 - blockIdx.y) * Z::QUERIES;
  int row = threadIdx.x / WARP * 16, first_row = query + row + threadIdx.x % WARP / 4;
  head_rows keys = rows_of(a.operands[FORWARD_KEY], batch, kv_head, a.keys);
  head_rows values = rows_of(a.operands[FORWARD_VALUE], batch, kv_head, a.keys);
  int seen = a.causal && query + Z::QUERIES < a.keys ? query + Z::QUERIES : (int)a.keys;
  forward_state<Z> s = {};
  s.factor = a.scale * (float)M_LOG2E;
  s.most[0] = s.most[1] = -INFINITY;
  float scores[Z::KEYS / 8][4], shrink[2];
  uint32_t weights[Z::KEYS / 16][4];

  load_tile<Z::THREADS>(t.query(), rows_of(a.operands[FORWARD_QUERY], batch, head, a.queries),
                        query);
  load_keys<Z>(t, keys, values, 0, seen, 0);
  wait_for_tiles();
  load_keys<Z>(t, keys, values, Z::KEYS, seen, 1);
  start_scores<Z>(scores, t, 0);
  wgmma_wait<0>();
  hold(scores);
  if (Z::KEYS > a.keys || (a.causal && Z::KEYS > query + row))
    hide<Z>(scores, 0, (int)a.keys, first_row, a.causal);
  take_softmax<Z>(s, scores, shrink);
  round_to_factor<Z::KEYS>(weights, scores);
  int stage = 0;
  for (int key = Z::KEYS; key < seen; key += Z::KEYS) {
    int before = stage;
    stage = stage_behind<Z>(stage);
    wait_for_tiles();
    load_keys<Z>(t, keys, values, key + Z::KEYS, seen, stage_behind<Z>(stage));
    start_scores<Z>(scores, t, stage);
    start_output<Z>(s, weights, t, before);
    wgmma_wait<1>();
    hold(scores);
    if (key + Z::KEYS > a.keys || (a.causal && key + Z::KEYS > query + row))
      hide<Z>(scores, key, (int)a.keys, first_row, a.causal);
    take_softmax<Z>(s, scores, shrink);
    wgmma_wait<0>();
    hold(s.output);
    hold(weights);
    multiply_output<Z>(s, shrink);
    round_to_factor<Z::KEYS>(weights, scores);
  }
  start_output<Z>(s, weights, t, stage);
  wgmma_wait<0>();
  hold(s.output);
  finish<Z>(s, a, shared, t.query(), query, batch, head);
}

/* ---- launch --------------------------------------------------------------------------------- */

template <class Z> static void launch(cuda_call *c, const attention_shape *a)
{
  dim3 grid((unsigned)(a->batch * a->heads),
            (unsigned)((a->queries + Z::QUERIES - 1) / Z::QUERIES));
  cudaError_t error = cudaFuncSetAttribute(
      attention_forward_kernel<Z>, cudaFuncAttributeMaxDynamicSharedMemorySize, Z::SHARED_BYTES);
  if (error == cudaSuccess) {
    attention_forward_kernel<Z><<<grid, Z::THREADS, Z::SHARED_BYTES, (cudaStream_t)c->stream>>>(*a);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

bool attention_own_suits(const attention_shape *a)
{
  return (a->qk == a->v && (a->qk == 64 || a->qk == 128)) || (a->qk == 192 && a->v == 128);
}

void attention_own_forward(cuda_call *c, const attention_shape *a)
{
  if (a->qk == 64)
    launch<forward_sizes<64, 64, 64, 2>>(c, a);
  else if (a->qk == 128)
    launch<forward_sizes<128, 128, 128, 2>>(c, a);
  else
    launch<forward_sizes<192, 128, 64, 3>>(c, a);
}
