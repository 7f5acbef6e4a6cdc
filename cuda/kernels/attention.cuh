/*
 * Attention on the device: places of rows, and panels of floats that threads compute with. The twin
 * of ref/kernels/attention.h, whose sizes it uses.
 *
 * Queries are numbered over all sequences, heads and rows, keys over all sequences, heads of keys
 * and positions. Panels of queries have columns as the outer dimension, so that neighbouring
 * threads, which have neighbouring queries, read contiguous memory; panels of keys have columns as
 * the inner dimension.
 */
#ifndef OFFSIM_CUDA_KERNELS_ATTENTION_CUH
#define OFFSIM_CUDA_KERNELS_ATTENTION_CUH

extern "C" {
#include "ref/kernels/attention.h"
}
#include "cuda/kernels/dropout.cuh"
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"
#include "cuda/kernels/sequence_part.cuh"

enum { ATTENTION_BLOCK = 8 }; /* keys, or queries, that a thread processes together */

static inline int64_t query_count(const attention &a)
{
  return a.batch * a.heads * a.queries;
}

static inline int64_t key_count(const attention &a)
{
  return a.batch * a.kv_heads * a.keys;
}

/* ---- where rows are -------------------------------------------------------------------------- */

typedef struct attention_place {
  int64_t batch, head, row; /* of a key: its position */
} attention_place;

DEVICE static inline attention_place place_of_query(const attention &a, int64_t n)
{
  attention_place p = { n / (a.heads * a.queries), n / a.queries % a.heads, n % a.queries };
  return p;
}

DEVICE static inline attention_place place_of_key(const attention &a, int64_t n)
{
  attention_place p = { n / (a.kv_heads * a.keys), n / a.keys % a.kv_heads, n % a.keys };
  return p;
}

/* Number of the first key of a query's head. */
DEVICE static inline int64_t first_key_of(const attention &a, const attention_place &p)
{
  return (p.batch * a.kv_heads + p.head / (a.heads / a.kv_heads)) * a.keys;
}

/* Element (batch, head, row, 0) of an operand of `heads` heads of `length` rows. */
DEVICE static inline int64_t row_element(const attention &a, int64_t heads, int64_t length,
                                         int64_t columns, const attention_place &p)
{
  switch (a.layout) {
  case ATTENTION_BHSD: return ((p.batch * heads + p.head) * length + p.row) * columns;
  case ATTENTION_SBHD: return ((p.row * a.batch + p.batch) * heads + p.head) * columns;
  default: return ((p.batch * length + p.row) * heads + p.head) * columns; /* ATTENTION_BSHD */
  }
}

DEVICE static inline int64_t query_element(const attention &a, int64_t n, int64_t columns)
{
  return row_element(a, a.heads, a.queries, columns, place_of_query(a, n));
}

/* The operands of keys and values, or of their gradients. Own ones: keys and values. Of all ranks: those of
 * the first ranks and those of the others, each rank's keys before its values. */
typedef struct key_operands {
  tensor first, second;
  int64_t first_ranks; /* 0: own ones */
} key_operands;

static inline key_operands own_keys(const tensor &key, const tensor &value)
{
  key_operands k = { merged(key), merged(value), 0 };
  return k;
}

/* In one operand or two. */
static inline key_operands keys_of_all(const attention &a, const tensor *all)
{
  int64_t ranks = attention_ranks_of(&a, all);
  key_operands k = { merged(all[0]), merged(all[ranks < a.part.size ? 1 : 0]), ranks };
  return k;
}

/* Of key number `n`, or of its value: the operand and its first element. */
typedef struct key_place {
  bool second;
  int64_t element;
} key_place;

DEVICE static inline key_place place_of_keys(const attention &a, int64_t first_ranks, bool value,
                                             int64_t n)
{
  attention_place p = place_of_key(a, n);
  int64_t columns = value ? a.v : a.qk, length = a.keys / a.part.size;
  p.row = row_of_position(a.part.size, length, p.row);
  key_place to = { value, 0 };
  if (first_ranks == 0) {
    to.element = row_element(a, a.kv_heads, a.keys, columns, p);
    return to;
  }
  int64_t rank = p.row / length, rows = a.batch * a.kv_heads * length;
  to.second = rank >= first_ranks;
  if (to.second) rank -= first_ranks;
  p.row %= length;
  to.element = row_element(a, a.kv_heads, length, columns, p) + rank * rows * (a.qk + a.v) +
               (value ? rows * a.qk : 0);
  return to;
}

/* ---- who sees what --------------------------------------------------------------------------- */

DEVICE static inline int64_t position_of_query(const attention &a, int64_t row)
{
  if (a.local_queries) return position_of(a.part, a.queries, row);
  int64_t length = a.queries / a.part.size;
  exec_position of = { (uint32_t)(row / length), a.part.size };
  return position_of(of, length, row % length);
}

/* The keys that a query sees. */
DEVICE static inline attention_span visible_keys(const attention &a, int64_t position)
{
  int64_t up_to = a.causal ? position + 1 : a.keys;
  int64_t count = a.window > 0 && a.window < up_to ? a.window : up_to;
  attention_span seen = { up_to - count, count };
  return seen;
}

/* Dropout's factors of probabilities. */
typedef struct attention_dropout {
  uint64_t key, rank, ranks; /* rank, ranks: for the numbers of heads */
  double probability;
  float kept;
} attention_dropout;

static inline attention_dropout attention_dropout_of(const attention &a)
{
  exec_position of = a.call->rank->group[GROUP_TP];
  attention_dropout d = { ref_dropout_key(a.call), 0, of.size > 1 ? of.size : 1,
                          a.call->call->scalars[2], 1 };
  if (d.ranks > 1) d.rank = of.index;
  if (a.part.size > 1 && !a.local_queries) {
    d.rank = d.rank * a.part.size + a.part.index;
    d.ranks *= a.part.size;
  }
  if (d.probability > 0) d.kept = 1 / (1 - a.dropout);
  return d;
}

/* The factor of a query's key `j`. */
DEVICE static inline float dropout_factor(const attention &a, const attention_dropout &d,
                                          const attention_place &p, int64_t position, int64_t j)
{
  if (d.probability == 0) return d.kept;
  uint64_t keys = (uint64_t)a.keys;
  uint64_t head = ((uint64_t)p.batch * d.ranks + d.rank) * (uint64_t)a.heads + (uint64_t)p.head;
  uint64_t element = (head * keys + (uint64_t)position) * keys + (uint64_t)j;
  return is_kept(d.key, element, d.probability) ? d.kept : 0;
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* [queries][columns] of the operand to [columns][queries]. */
static inline float *load_queries(cuda_call *c, const attention &of, tensor t, int64_t columns,
                                  scratch_arena *room)
{
  attention a = of;
  int64_t count = query_count(a);
  float *panel = take<float>(room, count * columns);
  if (c == NULL) return panel;
  assert(elements_of(t) == count * columns);
  t = merged(t);
  for_each(
      c, count * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t n = i / columns, column = i % columns;
        panel[column * count + n] = load(t, query_element(a, n, columns) + column);
      });
  return panel;
}

static inline void store_queries(cuda_call *c, const attention &of, tensor t, int64_t columns,
                                 const float *panel)
{
  attention a = of;
  int64_t count = query_count(a);
  t = merged(t);
  for_each(
      c, count * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t n = i / columns, column = i % columns;
        store(t, query_element(a, n, columns) + column, panel[column * count + n]);
      });
}

/* [keys][columns] */
static inline float *load_keys(cuda_call *c, const attention &of, const key_operands &from,
                               bool value, scratch_arena *room)
{
  attention a = of;
  tensor first = from.first, second = from.second;
  int64_t first_ranks = from.first_ranks;
  int64_t columns = value ? a.v : a.qk, count = key_count(a) * columns;
  float *panel = take<float>(room, count);
  if (c == NULL) return panel;
  for_each(
      c, count, KERNEL_LAMBDA(int64_t i) {
        key_place p = place_of_keys(a, first_ranks, value, i / columns);
        panel[i] = load(p.second ? second : first, p.element + i % columns);
      });
  return panel;
}

/* From [columns][keys], as threads of neighbouring keys write it. */
static inline void store_keys(cuda_call *c, const attention &of, const key_operands &to, bool value,
                              const float *panel)
{
  attention a = of;
  tensor first = to.first, second = to.second;
  int64_t first_ranks = to.first_ranks;
  int64_t columns = value ? a.v : a.qk, count = key_count(a);
  for_each(
      c, count * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t n = i / columns, column = i % columns;
        key_place p = place_of_keys(a, first_ranks, value, n);
        store(p.second ? second : first, p.element + column, panel[column * count + n]);
      });
}

/* ---- sums over columns, ascending ------------------------------------------------------------ */

/* Of one line's columns, `stride` apart, times those of ATTENTION_BLOCK others, of which `size`
 * exist: they begin `next` apart, their columns `other_stride` apart. */
DEVICE static inline void products_of(const float *line, int64_t stride, const float *others,
                                      int64_t next, int64_t other_stride, int64_t columns, int size,
                                      float sums[ATTENTION_BLOCK])
{
#pragma unroll
  for (int b = 0; b < ATTENTION_BLOCK; b++)
    sums[b] = 0;
  for (int64_t i = 0; i < columns; i++) {
    float x = line[i * stride];
#pragma unroll
    for (int b = 0; b < ATTENTION_BLOCK; b++)
      if (b < size) sums[b] += x * others[b * next + i * other_stride];
  }
}

/* sums[i] += factor x other for each of `size` others in turn, of those that count. */
DEVICE static inline void add_products(float *sums, int64_t stride, const float *others,
                                       int64_t next, int64_t other_stride, int64_t columns,
                                       int size, const float factors[ATTENTION_BLOCK],
                                       const bool counts[ATTENTION_BLOCK])
{
  for (int64_t i = 0; i < columns; i++) {
    float sum = sums[i * stride];
#pragma unroll
    for (int b = 0; b < ATTENTION_BLOCK; b++)
      if (b < size && counts[b]) sum += factors[b] * others[b * next + i * other_stride];
    sums[i * stride] = sum;
  }
}

#endif
