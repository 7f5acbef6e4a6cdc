/*
 * Rows of an embedding table: ref/kernels/embedding.c. For the gradient, the tokens of each row are
 * a list in ascending order: its first by the smallest number of all, which no order changes, and
 * each token's next by looking for it.
 */
#include "cuda/kernels/fast/layout.cuh"

enum { EMBEDDING_THREADS = 256, SEARCH_WARP = 32, SEARCH_EACH = 4 }; /* tokens of a lane */

struct embedding {
  layout indices, mask, table, rows; /* units of `columns`; rows: of tokens */
  divisor vectors;                   /* of a row */
  uint32_t tokens, table_rows, units;
  bool masked;
  int32_t *own, *next; /* by token: its row in the table, -1: none; the next token of that row */
  uint32_t *first;     /* by row of the table; none: NO_TOKEN */
};

static const uint32_t NO_TOKEN = 0xffffffffU;

static __device__ inline int32_t row_of(const embedding &e, uint32_t token)
{
  return e.masked && index_at(e.mask, token) != 0 ? -1 : (int32_t)index_at(e.indices, token);
}

template <int V> __global__ void __launch_bounds__(EMBEDDING_THREADS) rows_kernel(embedding e)
{
  uint32_t i = blockIdx.x * EMBEDDING_THREADS + threadIdx.x;
  float x[V] = {};
  if (i >= e.units) return;
  uint32_t token = divided_by(i, e.vectors);
  int64_t column = (int64_t)(i - token * e.vectors.by) * V;
  int32_t row = row_of(e, token);
  if (row >= 0) load<V>(e.table, place_of(e.table, (uint32_t)row) + column, x);
  store<V>(e.rows, place_of(e.rows, token) + column, x);
}

__global__ void __launch_bounds__(EMBEDDING_THREADS) clear_kernel(embedding e)
{
  uint32_t i = blockIdx.x * EMBEDDING_THREADS + threadIdx.x;
  if (i < e.table_rows) e.first[i] = NO_TOKEN;
  if (i < e.tokens) e.own[i] = row_of(e, i);
}

/* A warp for each token. */
__global__ void __launch_bounds__(EMBEDDING_THREADS) link_kernel(embedding e)
{
  uint32_t token = (blockIdx.x * EMBEDDING_THREADS + threadIdx.x) / SEARCH_WARP;
  uint32_t lane = threadIdx.x % SEARCH_WARP, at = token + 1, next = NO_TOKEN;
  if (token >= e.tokens) return;
  int32_t row = e.own[token];
  if (row < 0) return;
  for (; at < e.tokens && next == NO_TOKEN; at += SEARCH_WARP * SEARCH_EACH) {
    bool same[SEARCH_EACH];
#pragma unroll
    for (uint32_t k = 0; k < SEARCH_EACH; k++) {
      uint32_t other = at + k * SEARCH_WARP + lane;
      same[k] = other < e.tokens && e.own[other] == row;
    }
#pragma unroll
    for (uint32_t k = 0; k < SEARCH_EACH; k++) {
      uint32_t found = __ballot_sync(0xffffffffU, same[k]);
      if (found != 0 && next == NO_TOKEN)
        next = at + k * SEARCH_WARP + (uint32_t)__ffs((int)found) - 1;
    }
  }
  if (lane != 0) return;
  e.next[token] = (int32_t)next;
  atomicMin(&e.first[row], token);
}

template <int V> __global__ void __launch_bounds__(EMBEDDING_THREADS) sums_kernel(embedding e)
{
  uint32_t i = blockIdx.x * EMBEDDING_THREADS + threadIdx.x;
  float sum[V] = {}, x[V];
  if (i >= e.units) return;
  uint32_t row = divided_by(i, e.vectors);
  int64_t column = (int64_t)(i - row * e.vectors.by) * V;
  for (int32_t token = (int32_t)e.first[row]; token >= 0; token = e.next[token]) {
    load<V>(e.rows, place_of(e.rows, (uint32_t)token) + column, x);
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] += x[j];
  }
  store<V>(e.table, place_of(e.table, row) + column, sum);
}

static int embedding_of(const exec_call *c, const tensor &indices, const tensor &table,
                        const tensor &rows, embedding *e)
{
  int64_t tokens = c->call->dims[0], h = c->call->dims[1];
  const tensor *all[2] = { &table, &rows };
  int v = vector_elements(all, 2);
  if (!is_number(table) || !is_number(rows) || h == 0 || tokens == 0 || h % v != 0) return 0;
  int64_t table_rows = elements_of(table) / h;
  int64_t units = (&rows == &c->writes[0] ? tokens : table_rows) * (h / v);
  e->masked = c->read_count > 2;
  e->mask = layout{};
  e->tokens = (uint32_t)tokens;
  e->table_rows = (uint32_t)table_rows;
  e->units = (uint32_t)units;
  e->vectors = divisor_of((uint32_t)(h / v));
  bool suits = tokens < INT32_MAX / SEARCH_WARP && units < INT32_MAX &&
               elements_of(rows) == tokens * h && table_rows * h == elements_of(table) &&
               is_index(indices) && elements_of(indices) == tokens &&
               layout_of(indices, 1, 1, &e->indices) && layout_of(table, h, v, &e->table) &&
               layout_of(rows, h, v, &e->rows) &&
               (!e->masked || (is_index(c->reads[2]) && elements_of(c->reads[2]) == tokens &&
                               layout_of(c->reads[2], 1, 1, &e->mask)));
  return suits ? v : 0;
}

KERNEL_SUITS(embedding_forward)
{
  embedding e;
  return embedding_of(c, c->reads[0], c->reads[1], c->writes[0], &e) != 0;
}

KERNEL_LAUNCH(embedding_forward)
{
  embedding e;
  int v = embedding_of(c->of, c->of->reads[0], c->of->reads[1], c->of->writes[0], &e);
  uint32_t blocks = blocks_of(e.units, EMBEDDING_THREADS);
  if (v == 8)
    rows_kernel<8><<<blocks, EMBEDDING_THREADS, 0, stream_of(c)>>>(e);
  else
    rows_kernel<4><<<blocks, EMBEDDING_THREADS, 0, stream_of(c)>>>(e);
  launched(c);
}

KERNEL_SUITS(embedding_backward)
{
  embedding e;
  return embedding_of(c, c->reads[1], c->writes[0], c->reads[0], &e) != 0;
}

KERNEL_SCRATCH(embedding_backward)
{
  int64_t tokens = c->call->dims[0], rows = elements_of(c->writes[0]) / c->call->dims[1];
  return (2 * tokens + rows) * (int64_t)sizeof(int32_t);
}

KERNEL_LAUNCH(embedding_backward)
{
  embedding e;
  int v = embedding_of(c->of, c->of->reads[1], c->of->writes[0], c->of->reads[0], &e);
  uint32_t blocks = blocks_of(e.units, EMBEDDING_THREADS);
  uint32_t most = e.tokens > e.table_rows ? e.tokens : e.table_rows;
  e.own = (int32_t *)c->scratch;
  e.next = e.own + e.tokens;
  e.first = (uint32_t *)(e.next + e.tokens);
  clear_kernel<<<blocks_of(most, EMBEDDING_THREADS), EMBEDDING_THREADS, 0, stream_of(c)>>>(e);
  link_kernel<<<blocks_of((int64_t)e.tokens * SEARCH_WARP, EMBEDDING_THREADS), EMBEDDING_THREADS, 0,
                stream_of(c)>>>(e);
  if (v == 8)
    sums_kernel<8><<<blocks, EMBEDDING_THREADS, 0, stream_of(c)>>>(e);
  else
    sums_kernel<4><<<blocks, EMBEDDING_THREADS, 0, stream_of(c)>>>(e);
  launched(c);
}
