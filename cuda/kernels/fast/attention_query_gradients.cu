/* Gradients of queries: a block of threads has some queries of a head and goes over their keys. */
#include "cuda/kernels/fast/attention_backward.cuh"

/* Columns; keys at a time; groups of four warps, of 64 queries each. */
template <int QK_, int V_, int KEYS_, int GROUPS_> struct query_sizes {
  static const int QK = QK_, V = V_, KEYS = KEYS_, THREADS = GROUPS_ * GROUP;
  static const int QUERIES = GROUPS_ * GROUP_ROWS;
  typedef tile<QUERIES, QK> query_tile;
  typedef tile<QUERIES, V> gradient_tile;
  typedef tile<KEYS, QK> key_tile;
  typedef tile<KEYS, V> value_tile;
  static const int STAGES = 3, STAGE_BYTES = key_tile::bytes + value_tile::bytes;
  static const int STAGES_BEGIN = query_tile::bytes + gradient_tile::bytes;
  static const int SHARED_BYTES = STAGES_BEGIN + STAGES * STAGE_BYTES + TILE_ALIGNMENT;
};

template <class Z> struct query_tiles {
  uint32_t begin;

  __device__ typename Z::query_tile query() const
  {
    return { begin };
  }

  __device__ typename Z::gradient_tile gradient() const
  {
    return { begin + Z::query_tile::bytes };
  }

  __device__ typename Z::key_tile key(int stage) const
  {
    return { begin + Z::STAGES_BEGIN + stage * Z::STAGE_BYTES };
  }

  __device__ typename Z::value_tile value(int stage) const
  {
    return { key(stage).address + Z::key_tile::bytes };
  }
};

/* Of [queries, keys]; `key` and `query` are those of this thread's first element. */
template <class Z>
__device__ void gradients_of(float (&scores)[Z::KEYS / 8][4], float (&gradients)[Z::KEYS / 8][4],
                             const row_terms (&terms)[2], float factor, int key, int query,
                             const attention_shape &a)
{
  int last_key = key / Z::KEYS * Z::KEYS + Z::KEYS - 1, first_query = query / 16 * 16;
  bool whole = last_key < a.keys && (!a.causal || last_key <= first_query);
#pragma unroll
  for (int n = 0; n < Z::KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int k = key + n * 8 + i % 2, q = query + i / 2 * 8;
      bool seen = whole || (k < a.keys && (!a.causal || k <= q));
      score_gradient(scores[n][i], gradients[n][i], terms[i / 2], factor, seen);
    }
}

/* Starts the products that scores and their gradients come from, of the block in a stage. */
template <class Z>
__device__ void start_scores(float (&scores)[Z::KEYS / 8][4], float (&gradients)[Z::KEYS / 8][4],
                             const query_tiles<Z> &t, int stage)
{
  int row = threadIdx.x / GROUP * GROUP_ROWS;
  hold(scores);
  hold(gradients);
  wgmma_begin();
  multiply_rows<Z::KEYS>(scores, t.query(), row, t.key(stage));
  multiply_rows<Z::KEYS>(gradients, t.gradient(), row, t.value(stage));
  wgmma_commit();
}

/* Starts adding the product of the block in a stage. */
template <class Z>
__device__ void start_sums(float (&sums)[Z::QK / 8][4], uint32_t (&factor)[Z::KEYS / 16][4],
                           const query_tiles<Z> &t, int stage)
{
  hold(sums);
  hold(factor);
  wgmma_begin();
  add_product<Z::QK, Z::KEYS>(sums, factor, t.key(stage));
  wgmma_commit();
}

/* The last queries, which see most keys, first. While gradients are taken from a block's scores the
 * product of the block before is added and the next one is loaded. */
template <class Z>
__global__ void __launch_bounds__(Z::THREADS, 1)
    attention_query_gradients_kernel(attention_shape a, const row_terms *all_terms)
{
  extern __shared__ unsigned char shared[];
  query_tiles<Z> t = { aligned_tiles(shared) };
  int64_t head = blockIdx.x % a.heads, batch = blockIdx.x / a.heads;
  int64_t kv_head = head / (a.heads / a.kv_heads);
  int query = (int)(gridDim.y - 1 - blockIdx.y) * Z::QUERIES;
  int row = threadIdx.x / WARP * 16, lane = threadIdx.x % WARP;
  int seen = a.causal && query + Z::QUERIES < a.keys ? query + Z::QUERIES : (int)a.keys;
  head_rows keys = rows_of(a.operands[BACKWARD_KEY], batch, kv_head, a.keys);
  head_rows values = rows_of(a.operands[BACKWARD_VALUE], batch, kv_head, a.keys);
  const row_terms *own = all_terms + (batch * a.heads + head) * row_terms_of_head(a) + query + row;
  const row_terms terms[2] = { own[lane / 4], own[lane / 4 + 8] };
  const float factor = a.scale * (float)M_LOG2E;
  float sums[Z::QK / 8][4] = {}, scores[Z::KEYS / 8][4], gradients[Z::KEYS / 8][4];
  uint32_t rounded[Z::KEYS / 16][4];

  load_tile<Z::THREADS>(t.query(), rows_of(a.operands[BACKWARD_QUERY], batch, head, a.queries),
                        query);
  load_tile<Z::THREADS>(
      t.gradient(), rows_of(a.operands[BACKWARD_OUTPUT_GRADIENT], batch, head, a.queries), query);
  load_keys<Z>(t, keys, values, 0, seen, 0);
  wait_for_tiles();
  load_keys<Z>(t, keys, values, Z::KEYS, seen, 1);
  start_scores<Z>(scores, gradients, t, 0);
  wgmma_wait<0>();
  hold(scores);
  hold(gradients);
  gradients_of<Z>(scores, gradients, terms, factor, lane % 4 * 2, query + row + lane / 4, a);
  round_to_factor<Z::KEYS>(rounded, gradients);
  int stage = 0;
  for (int key = Z::KEYS; key < seen; key += Z::KEYS) {
    int before = stage;
    stage = stage_behind<Z>(stage);
    wait_for_tiles();
    load_keys<Z>(t, keys, values, key + Z::KEYS, seen, stage_behind<Z>(stage));
    start_scores<Z>(scores, gradients, t, stage);
    start_sums<Z>(sums, rounded, t, before);
    wgmma_wait<1>();
    hold(scores);
    hold(gradients);
    gradients_of<Z>(scores, gradients, terms, factor, key + lane % 4 * 2, query + row + lane / 4,
                    a);
    wgmma_wait<0>();
    hold(sums);
    hold(rounded);
    round_to_factor<Z::KEYS>(rounded, gradients);
  }
  start_sums<Z>(sums, rounded, t, stage);
  wgmma_wait<0>();
  hold(sums);
  __syncthreads();
  store_rows<Z::QK>(sums, a.scale, shared, t.query(), row,
                    rows_of(a.operands[BACKWARD_QUERY_GRADIENT], batch, head, a.queries),
                    query + row);
}

/* ---- launch --------------------------------------------------------------------------------- */

template <class Z>
static void launch(cuda_call *c, const attention_shape *a, const row_terms *terms)
{
  dim3 grid((unsigned)(a->batch * a->heads),
            (unsigned)((a->queries + Z::QUERIES - 1) / Z::QUERIES));
  launch_attention(c, attention_query_gradients_kernel<Z>, grid, Z::THREADS, Z::SHARED_BYTES, a,
                   terms);
}

void attention_query_gradients(cuda_call *c, const attention_shape *a, const row_terms *terms)
{
  if (a->qk == 64)
    launch<query_sizes<64, 64, 64, 2>>(c, a, terms);
  else if (a->qk == 128)
    launch<query_sizes<128, 128, 64, 2>>(c, a, terms);
  else
    launch<query_sizes<192, 128, 64, 2>>(c, a, terms);
}
