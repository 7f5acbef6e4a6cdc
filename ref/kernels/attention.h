/*
 * Attention in one kernel: sizes, places of rows, and the panels that both directions use.
 *
 * Keys are read by ascending position, not in the order in which the ranks of a context-parallel
 * group have them, so that a query's sums are the same for any number of ranks.
 */
#ifndef OFFSIM_REF_KERNELS_ATTENTION_H
#define OFFSIM_REF_KERNELS_ATTENTION_H

#include "ref/kernels/kernel.h"

typedef struct attention {
  const exec_call *call;
  int64_t batch, heads, queries, keys, qk, v, kv_heads; /* qk, v: columns of a head */
  bool causal;
  int64_t window; /* keys that a query sees, its own the last; 0: all up to its own */
  real scale, dropout;
  attention_layout layout;
  exec_position part; /* of the sequence; ranks that share it */
  bool local_queries; /* this rank's queries against the keys of all ranks */
} attention;

attention attention_of(const exec_call *c);

/* One head of some operand, [length, columns] inside [batch, heads, length, columns] in the call's
 * layout. */
typedef struct attention_head {
  const exec_tensor *tensor;
  int64_t first, step; /* element of row 0; distance from row to row */
  int64_t columns;
} attention_head;

attention_head attention_query(const attention *a, const exec_tensor *t, int64_t batch,
                               int64_t head, int64_t columns);

void attention_load(const attention_head *h, int64_t row, real *to);
void attention_store(const attention_head *h, int64_t row, const real *from);

/* Position of a query's row. */
int64_t attention_query_position(const attention *a, int64_t row);
/* Keys by position. */
typedef struct attention_span {
  int64_t first, count;
} attention_span;

/* Those that a query at `position` sees. */
attention_span attention_visible(const attention *a, int64_t position);

/* The operands of keys and values, or of their gradients. */
typedef struct attention_keys {
  const exec_tensor *key, *value;
  const exec_tensor *all; /* or those of all ranks, in one operand or several: rank after rank */
} attention_keys;

/* How many ranks' keys and values an operand of `all` has. */
uint32_t attention_ranks_of(const attention *a, const exec_tensor *all);

/* The rows of a group's keys and values by position. */
void attention_load_keys(const attention *a, const attention_keys *from, int64_t batch,
                         int64_t kv_head, real *keys, real *values);
void attention_store_keys(const attention *a, const attention_keys *to, int64_t batch,
                          int64_t kv_head, const real *keys, const real *values);

/* [rows, columns] -> [columns, rows] */
void attention_transpose(const real *from, int64_t rows, int64_t columns, real *to);

/* Scaled scores of a query against the keys that it sees: for each key, products over columns
 * ascending. */
void attention_scores(const attention *a, const real *query, const real *keys_transposed,
                      attention_span seen, real *scores);

/*
 * The factors by which attention dropout multiplies the probabilities of the keys that a
 * query sees: 0, or 1 over the probability to stay. By the rule of dropout.h; the number of an element
 * follows from the sequence, the head of the model and both positions, so that backward and
 * recomputation get the same factors.
 */
void attention_dropout_factors(const attention *a, int64_t batch, int64_t head, int64_t position,
                               attention_span seen, real *factors);

#endif
