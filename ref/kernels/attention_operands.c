#include <assert.h>

#include "ref/kernels/attention.h"
#include "ref/kernels/dropout.h"
#include "ref/kernels/positions.h"
#include "ref/kernels/storage.h"

enum { BATCH, HEADS, QUERIES, KEYS, QK, V, CAUSAL, WINDOW };

attention attention_of(const exec_call *c)
{
  const double *scalars = c->call->scalars;
  attention a = { .call = c,
                  .batch = exec_dim(c, BATCH),
                  .heads = exec_dim(c, HEADS),
                  .queries = exec_dim(c, QUERIES),
                  .keys = exec_dim(c, KEYS),
                  .qk = exec_dim(c, QK),
                  .v = exec_dim(c, V),
                  .kv_heads = (int64_t)scalars[0],
                  .causal = exec_dim(c, CAUSAL) != 0,
                  .window = exec_dim(c, WINDOW),
                  .scale = (real)scalars[1],
                  .dropout = (real)scalars[2],
                  .layout = (attention_layout)scalars[3],
                  .part = ref_sequence_part(c) };
  a.local_queries = a.part.size > 1 && a.queries < a.keys;
  assert(a.kv_heads > 0 && a.heads % a.kv_heads == 0);
  assert(a.dropout >= 0 && a.dropout < 1 && (a.window == 0 || a.causal));
  assert(a.queries * (a.local_queries ? a.part.size : 1) == a.keys);
  return a;
}

/* ---- where rows are ------------------------------------------------------------------------- */

static attention_head head_in(const attention *a, const exec_tensor *t, int64_t heads,
                              int64_t length, int64_t columns, int64_t batch, int64_t head)
{
  attention_head h = { .tensor = t, .columns = columns };
  switch (a->layout) {
  case ATTENTION_BHSD:
    h.first = (batch * heads + head) * length * columns;
    h.step = columns;
    break;
  case ATTENTION_SBHD:
    h.first = (batch * heads + head) * columns;
    h.step = a->batch * heads * columns;
    break;
  case ATTENTION_BSHD:
    h.first = (batch * length * heads + head) * columns;
    h.step = heads * columns;
    break;
  }
  return h;
}

attention_head attention_query(const attention *a, const exec_tensor *t, int64_t batch,
                               int64_t head, int64_t columns)
{
  assert(exec_elements(t) == a->batch * a->heads * a->queries * columns);
  return head_in(a, t, a->heads, a->queries, columns, batch, head);
}

static attention_head key_of(const attention *a, const exec_tensor *t, int64_t batch, int64_t head,
                             int64_t columns)
{
  assert(exec_elements(t) == a->batch * a->kv_heads * a->keys * columns);
  return head_in(a, t, a->kv_heads, a->keys, columns, batch, head);
}

uint32_t attention_ranks_of(const attention *a, const exec_tensor *all)
{
  int64_t part = a->batch * a->kv_heads * (a->keys / a->part.size) * (a->qk + a->v);
  int64_t elements = exec_elements(all);
  assert(elements >= part && elements % part == 0);
  return (uint32_t)(elements / part);
}

/* The keys or values of `rank` in those of all ranks, which have each rank's keys and then its
 * values. */
static attention_head key_of_rank(const attention *a, const exec_tensor *all, uint32_t rank,
                                  bool value, int64_t batch, int64_t head)
{
  int64_t length = a->keys / a->part.size, rows = a->batch * a->kv_heads * length;
  for (uint32_t ranks; rank >= (ranks = attention_ranks_of(a, all)); all++)
    rank -= ranks;
  attention_head h = head_in(a, all, a->kv_heads, length, value ? a->v : a->qk, batch, head);
  h.first += rank * rows * (a->qk + a->v) + (value ? rows * a->qk : 0);
  return h;
}

void attention_load(const attention_head *h, int64_t row, real *to)
{
  ref_load_row(h->tensor, h->first + row * h->step, h->columns, to);
}

void attention_store(const attention_head *h, int64_t row, const real *from)
{
  ref_store_row(h->tensor, h->first + row * h->step, h->columns, from);
}

/* ---- positions ------------------------------------------------------------------------------ */

int64_t attention_query_position(const attention *a, int64_t row)
{
  if (a->local_queries) return ref_position_of(a->part, a->queries, row);
  int64_t length = a->queries / a->part.size;
  exec_position of = { (uint32_t)(row / length), a->part.size };
  return ref_position_of(of, length, row % length);
}

/* The row of a key's position, and its rank if there are several. */
static int64_t key_row(const attention *a, int64_t position, uint32_t *rank)
{
  int64_t length = a->keys / a->part.size;
  int64_t row = ref_row_of_position(a->part.size, length, position);
  *rank = (uint32_t)(row / length);
  return a->local_queries ? row % length : row;
}

attention_span attention_visible(const attention *a, int64_t position)
{
  int64_t up_to = a->causal ? position + 1 : a->keys;
  int64_t count = a->window > 0 && a->window < up_to ? a->window : up_to;
  return (attention_span){ up_to - count, count };
}

/* ---- panels --------------------------------------------------------------------------------- */

static attention_head key_head(const attention *a, const attention_keys *k, uint32_t rank,
                               bool value, int64_t batch, int64_t head)
{
  if (k->all != NULL) return key_of_rank(a, k->all, rank, value, batch, head);
  return key_of(a, value ? k->value : k->key, batch, head, value ? a->v : a->qk);
}

void attention_load_keys(const attention *a, const attention_keys *from, int64_t batch,
                         int64_t kv_head, real *keys, real *values)
{
  for (int64_t p = 0; p < a->keys; p++) {
    uint32_t rank;
    int64_t row = key_row(a, p, &rank);
    attention_head key = key_head(a, from, rank, false, batch, kv_head);
    attention_head value = key_head(a, from, rank, true, batch, kv_head);
    attention_load(&key, row, keys + p * a->qk);
    attention_load(&value, row, values + p * a->v);
  }
}

void attention_store_keys(const attention *a, const attention_keys *to, int64_t batch,
                          int64_t kv_head, const real *keys, const real *values)
{
  for (int64_t p = 0; p < a->keys; p++) {
    uint32_t rank;
    int64_t row = key_row(a, p, &rank);
    attention_head key = key_head(a, to, rank, false, batch, kv_head);
    attention_head value = key_head(a, to, rank, true, batch, kv_head);
    attention_store(&key, row, keys + p * a->qk);
    attention_store(&value, row, values + p * a->v);
  }
}

void attention_transpose(const real *from, int64_t rows, int64_t columns, real *to)
{
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      to[c * rows + r] = from[r * columns + c];
}

void attention_scores(const attention *a, const real *query, const real *keys_transposed,
                      attention_span seen, real *scores)
{
  for (int64_t j = 0; j < seen.count; j++)
    scores[j] = 0;
  for (int64_t c = 0; c < a->qk; c++)
    for (int64_t j = 0; j < seen.count; j++)
      scores[j] += query[c] * keys_transposed[c * a->keys + seen.first + j];
  for (int64_t j = 0; j < seen.count; j++)
    scores[j] *= a->scale;
}

/* ---- dropout -------------------------------------------------------------------------------- */

/* The number of this rank's head `head` among all heads of all sequences on all ranks. */
static uint64_t head_of_all(const attention *a, int64_t batch, int64_t head)
{
  exec_position of = a->call->rank->group[GROUP_TP];
  uint64_t ranks = of.size > 1 ? of.size : 1, rank = ranks > 1 ? of.index : 0;
  if (a->part.size > 1 && !a->local_queries) {
    rank = rank * a->part.size + a->part.index;
    ranks *= a->part.size;
  }
  return ((uint64_t)batch * ranks + rank) * (uint64_t)a->heads + (uint64_t)head;
}

void attention_dropout_factors(const attention *a, int64_t batch, int64_t head, int64_t position,
                               attention_span seen, real *factors)
{
  const double probability = a->call->call->scalars[2];
  const real kept = probability > 0 ? 1 / (1 - a->dropout) : 1;
  const uint64_t key = ref_dropout_key(a->call);
  uint64_t row = head_of_all(a, batch, head) * (uint64_t)a->keys + (uint64_t)position;
  for (int64_t j = 0; j < seen.count; j++) {
    uint64_t element = row * (uint64_t)a->keys + (uint64_t)(seen.first + j);
    factors[j] = probability == 0 || ref_is_kept(key, element, probability) ? kept : 0;
  }
}
