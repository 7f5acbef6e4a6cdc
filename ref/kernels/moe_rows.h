/*
 * The owners of rows: the index that the permutation of a mixture-of-experts layer writes, so that
 * rows can be moved back and experts can find their rows.
 *
 * The executor's plan has buffers of fixed sizes, while a router decides how many rows an expert
 * gets. Rows are ordered by expert, then by token. Compact: as many rows as the router chose, one
 * expert after the other; rows that exceed the buffer, which happens only when other ranks' tokens
 * arrive, are dropped. Slotted: every expert has an equal part of the buffer; rows that exceed it
 * are dropped, and the rest is zeros that belong to no token. A dropped choice counts as if its
 * probability were 0.
 *
 * The index has one of three forms:
 *   int32 [tokens, 2 experts + 1]  of each token, its row at each expert, -1: none; the rest is 0
 *   int64 [rows ..]                of each row, its cell: expert x 2^32 + token, -1: no token's
 *   int32 [experts ..]             of each expert, how many rows it has, 0 after the last; enough
 *                                  for the experts themselves, where the way back goes by a table
 *                                  (moe_flex.h)
 */
#ifndef OFFSIM_REF_KERNELS_MOE_ROWS_H
#define OFFSIM_REF_KERNELS_MOE_ROWS_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

typedef struct moe_rows {
  int64_t count;
  int64_t *token, *expert; /* by row; -1: none. Owned: moe_rows_release */
} moe_rows;

/* The choice of tokens, a byte each: [tokens, experts], or [experts, tokens] if `by_expert`. */
typedef struct moe_choice {
  const exec_tensor *map;
  int64_t tokens, experts;
  bool by_expert;
} moe_choice;

moe_rows moe_sort_rows(const moe_choice *c, int64_t rows, bool slotted);
/* Counts dropped choices. */
void moe_leave_out(const exec_call *c, int64_t choices);
/* Rows after those of the index, the padding of a buffer, have no owner. */
moe_rows moe_read_rows(const exec_tensor *index, int64_t rows);
void moe_write_rows(const moe_rows *r, int64_t tokens, int64_t experts, const exec_tensor *index);
void moe_rows_release(moe_rows *r);

/* The first row of expert `e` and the number of its rows; equal parts without an index. */
typedef struct moe_span {
  int64_t first, count;
} moe_span;
moe_span moe_span_of(const exec_tensor *index, int64_t rows, int64_t experts, int64_t e);

/* `count` zeros; the caller frees them. Exits if memory is refused. */
int64_t *moe_numbers(int64_t count);

#endif
