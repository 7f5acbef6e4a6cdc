/*
 * Gradients of keys and values: a block of threads has some keys and goes over the queries that see
 * them, of one head after the other of those that share the keys. Everything is turned: a row is a
 * key, so that probabilities are left factors where they are.
 */
#include "cuda/kernels/fast/attention_backward.cuh"

/* Columns; queries at a time; two groups of four warps, of 64 keys each. */
template <int QK_, int V_, int QUERIES_> struct key_sizes {
  static const int QK = QK_, V = V_, QUERIES = QUERIES_;
  static const int THREADS = 2 * GROUP, KEYS = 2 * GROUP_ROWS;
  typedef tile<KEYS, QK> key_tile;
  typedef tile<KEYS, V> value_tile;
  typedef tile<QUERIES, QK> query_tile;
  typedef tile<QUERIES, V> gradient_tile;
  static const int STAGES = 3, TERMS_BYTES = QUERIES * (int)sizeof(row_terms);
  static const int STAGE_BYTES = query_tile::bytes + gradient_tile::bytes;
  static const int STAGES_BEGIN = key_tile::bytes + value_tile::bytes;
  static const int TERMS_BEGIN = STAGES_BEGIN + STAGES * STAGE_BYTES;
  static const int SHARED_BYTES = TERMS_BEGIN + STAGES * TERMS_BYTES + TILE_ALIGNMENT;
};

template <class Z> struct key_tiles {
  uint32_t begin;

  __device__ typename Z::key_tile key() const
  {
    return { begin };
  }

  __device__ typename Z::value_tile value() const
  {
    return { begin + Z::key_tile::bytes };
  }

  __device__ typename Z::query_tile query(int stage) const
  {
    return { begin + Z::STAGES_BEGIN + stage * Z::STAGE_BYTES };
  }

  __device__ typename Z::gradient_tile gradient(int stage) const
  {
    return { query(stage).address + Z::query_tile::bytes };
  }
};

/* Which queries come: blocks of them from the first that sees a key, for each head of a group in
 * turn. */
struct query_walk {
  int first, blocks, steps;
  int64_t batch, first_head;

  template <class Z> __device__ int query(int step) const
  {
    return first + step % blocks * Z::QUERIES;
  }
};

template <class Z>
__device__ void load_queries(const key_tiles<Z> &t, const attention_shape &a,
                             const row_terms *terms, const query_walk &w, int step, int stage)
{
  if (step < w.steps) {
    int64_t head = w.first_head + step / w.blocks;
    int query = w.query<Z>(step);
    const row_terms *from = terms + (w.batch * a.heads + head) * row_terms_of_head(a) + query;
    load_tile<Z::THREADS>(t.query(stage),
                          rows_of(a.operands[BACKWARD_QUERY], w.batch, head, a.queries), query);
    load_tile<Z::THREADS>(t.gradient(stage),
                          rows_of(a.operands[BACKWARD_OUTPUT_GRADIENT], w.batch, head, a.queries),
                          query);
    if (threadIdx.x < Z::TERMS_BYTES / 16)
      copy_16(t.begin + Z::TERMS_BEGIN + stage * Z::TERMS_BYTES + threadIdx.x * 16,
              (const char *)from + threadIdx.x * 16, true);
  }
  copy_commit();
}

template <class Z>
__device__ const row_terms *terms_of(const unsigned char *shared, const key_tiles<Z> &t, int stage)
{
  return (const row_terms *)(shared + (t.begin - shared_address(shared)) + Z::TERMS_BEGIN +
                             stage * Z::TERMS_BYTES);
}

/* Of [keys, queries]; `key` and `query` are those of this thread's first element. */
template <class Z>
__device__ void turned_gradients(float (&scores)[Z::QUERIES / 8][4],
                                 float (&gradients)[Z::QUERIES / 8][4], const row_terms *terms,
                                 float factor, int key, int query, bool causal)
{
  int column = threadIdx.x % 4 * 2;
  bool whole = !causal || key / 16 * 16 + 15 <= query - column;
#pragma unroll
  for (int n = 0; n < Z::QUERIES / 8; n++) {
    float4 pair = *(const float4 *)(terms + n * 8 + column);
    row_terms two[2] = { { pair.x, pair.y }, { pair.z, pair.w } };
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool seen = whole || key + i / 2 * 8 <= query + n * 8 + i % 2;
      score_gradient(scores[n][i], gradients[n][i], two[i % 2], factor, seen);
    }
  }
}

/* Sums of a thread, and the factors that the next products of its group are made of. */
template <class Z> struct key_state {
  float key[Z::QK / 8][4], value[Z::V / 8][4];
  uint32_t weights[Z::QUERIES / 16][4], gradients[Z::QUERIES / 16][4];
};

/* Starts the products that scores and their gradients come from, of the block in a stage. */
template <class Z>
__device__ void start_scores(float (&scores)[Z::QUERIES / 8][4],
                             float (&gradients)[Z::QUERIES / 8][4], const key_tiles<Z> &t,
                             int stage)
{
  int row = threadIdx.x / GROUP * GROUP_ROWS;
  hold(scores);
  hold(gradients);
  wgmma_begin();
  multiply_rows<Z::QUERIES>(scores, t.key(), row, t.query(stage));
  multiply_rows<Z::QUERIES>(gradients, t.value(), row, t.gradient(stage));
  wgmma_commit();
}

template <class Z> __device__ void hold_state(key_state<Z> &s)
{
  hold(s.key);
  hold(s.value);
  hold(s.weights);
  hold(s.gradients);
}

/* Starts adding the products of the block in a stage, whose factors are there. */
template <class Z> __device__ void start_sums(key_state<Z> &s, const key_tiles<Z> &t, int stage)
{
  hold_state<Z>(s);
  wgmma_begin();
  add_product<Z::V, Z::QUERIES>(s.value, s.weights, t.gradient(stage));
  add_product<Z::QK, Z::QUERIES>(s.key, s.gradients, t.query(stage));
  wgmma_commit();
}

/* While probabilities are taken from a block's scores the products of the block before are added
 * and the next one is loaded. */
template <class Z>
__global__ void __launch_bounds__(Z::THREADS, 1)
    attention_key_gradients_kernel(attention_shape a, const row_terms *terms)
{
  extern __shared__ unsigned char shared[];
  key_tiles<Z> t = { aligned_tiles(shared) };
  int64_t kv_head = blockIdx.x % a.kv_heads, batch = blockIdx.x / a.kv_heads;
  int group = (int)(a.heads / a.kv_heads), row = threadIdx.x / WARP * 16;
  int key = (int)blockIdx.y * Z::KEYS, column = threadIdx.x % 4 * 2;
  int first_key = key + row + threadIdx.x % WARP / 4;
  query_walk w = { a.causal ? key / Z::QUERIES * Z::QUERIES : 0, 0, 0, batch, kv_head * group };
  w.blocks = ((int)a.queries - w.first + Z::QUERIES - 1) / Z::QUERIES;
  w.steps = w.blocks * group;
  const float factor = a.scale * (float)M_LOG2E;
  key_state<Z> s = {};
  float scores[Z::QUERIES / 8][4], gradients[Z::QUERIES / 8][4];

  load_tile<Z::THREADS>(t.key(), rows_of(a.operands[BACKWARD_KEY], batch, kv_head, a.keys), key);
  load_tile<Z::THREADS>(t.value(), rows_of(a.operands[BACKWARD_VALUE], batch, kv_head, a.keys),
                        key);
  load_queries<Z>(t, a, terms, w, 0, 0);
  wait_for_tiles();
  load_queries<Z>(t, a, terms, w, 1, 1);
  start_scores<Z>(scores, gradients, t, 0);
  wgmma_wait<0>();
  hold(scores);
  hold(gradients);
  turned_gradients<Z>(scores, gradients, terms_of<Z>(shared, t, 0), factor, first_key,
                      w.query<Z>(0) + column, a.causal);
  round_to_factor<Z::QUERIES>(s.weights, scores);
  round_to_factor<Z::QUERIES>(s.gradients, gradients);
  int stage = 0;
  for (int step = 1; step < w.steps; step++) {
    int before = stage;
    stage = stage_behind<Z>(stage);
    wait_for_tiles();
    load_queries<Z>(t, a, terms, w, step + 1, stage_behind<Z>(stage));
    start_scores<Z>(scores, gradients, t, stage);
    start_sums<Z>(s, t, before);
    wgmma_wait<1>();
    hold(scores);
    hold(gradients);
    turned_gradients<Z>(scores, gradients, terms_of<Z>(shared, t, stage), factor, first_key,
                        w.query<Z>(step) + column, a.causal);
    wgmma_wait<0>();
    hold_state<Z>(s);
    round_to_factor<Z::QUERIES>(s.weights, scores);
    round_to_factor<Z::QUERIES>(s.gradients, gradients);
  }
  start_sums<Z>(s, t, stage);
  wgmma_wait<0>();
  hold_state<Z>(s);
  __syncthreads();
  store_rows<Z::QK>(s.key, a.scale, shared, t.key(), row,
                    rows_of(a.operands[BACKWARD_KEY_GRADIENT], batch, kv_head, a.keys), key + row);
  store_rows<Z::V>(s.value, 1, shared, t.value(), row,
                   rows_of(a.operands[BACKWARD_VALUE_GRADIENT], batch, kv_head, a.keys), key + row);
}

/* ---- launch --------------------------------------------------------------------------------- */

/* The first keys, which most queries see, first. */
template <class Z>
static void launch(cuda_call *c, const attention_shape *a, const row_terms *terms)
{
  dim3 grid((unsigned)(a->batch * a->kv_heads), (unsigned)((a->keys + Z::KEYS - 1) / Z::KEYS));
  launch_attention(c, attention_key_gradients_kernel<Z>, grid, Z::THREADS, Z::SHARED_BYTES, a,
                   terms);
}

void attention_key_gradients(cuda_call *c, const attention_shape *a, const row_terms *terms)
{
  if (a->qk == 64)
    launch<key_sizes<64, 64, 64>>(c, a, terms);
  else if (a->qk == 128)
    launch<key_sizes<128, 128, 64>>(c, a, terms);
  else
    launch<key_sizes<192, 128, 32>>(c, a, terms);
}
