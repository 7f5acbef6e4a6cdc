/* The rows that come to each token, in ascending order. */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_MOE_TOKEN_ROWS_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_MOE_TOKEN_ROWS_CUH

#include "cuda/kernels/exact/moe_rows.cuh"

/* The rows of each token. */
typedef struct token_rows {
  int64_t *first; /* [tokens + 1] */
  int64_t *used;  /* [tokens] */
  int32_t *row;   /* [rows] */
  int64_t *pieces;
} token_rows;

static inline token_rows take_token_rows(scratch_arena *a, int64_t tokens, int64_t rows)
{
  token_rows t = { take<int64_t>(a, tokens + 1), take<int64_t>(a, tokens), take<int32_t>(a, rows),
                   take<int64_t>(a, BLOCK_THREADS) };
  return t;
}

DEVICE static inline void sort_few(int32_t *x, int64_t count)
{
  for (int64_t i = 1; i < count; i++) {
    int32_t one = x[i];
    int64_t k = i;
    for (; k > 0 && x[k - 1] > one; k--)
      x[k] = x[k - 1];
    x[k] = one;
  }
}

static inline void list_rows(cuda_call *c, row_owners r, token_rows l, int64_t tokens)
{
  for_each(
      c, tokens, KERNEL_LAMBDA(int64_t t) { l.first[t] = l.used[t] = 0; });
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        if (r.token[i] >= 0) (void)count_up(&l.first[r.token[i]], 1);
      });
  prefix_sums(c, l.first, tokens, l.pieces);
  for_each(
      c, r.count, KERNEL_LAMBDA(int64_t i) {
        int64_t t = r.token[i];
        if (t >= 0) l.row[l.first[t] + count_up(&l.used[t], 1)] = (int32_t)i;
      });
  for_each(
      c, tokens,
      KERNEL_LAMBDA(int64_t t) { sort_few(l.row + l.first[t], l.first[t + 1] - l.first[t]); });
}

#endif
