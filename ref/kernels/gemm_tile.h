/*
 * The innermost loops of a matrix product: `rows` x `columns` sums stay in registers while k runs.
 * There is one loop for each width of the machine's vectors, all with the same bits: a lane is one
 * sum.
 */
#ifndef OFFSIM_REF_KERNELS_GEMM_TILE_H
#define OFFSIM_REF_KERNELS_GEMM_TILE_H

#include "ref/kernels/kernel.h"

enum { TILE_ROWS_MAX = 8, TILE_COLUMNS_MAX = 32, TILE_ALIGNMENT = 64 };

/* sums[i * stride + j] += a[p * rows + i] * b[p * columns + j] for p from 0 to k - 1. `b`, `sums`
 * and `stride` keep the alignment, in bytes. */
typedef void gemm_tile(int64_t k, const real *a, const real *b, real *sums, int64_t stride);

typedef struct gemm_path {
  const char *name;  /* "avx512" */
  int rows, columns; /* each a divisor of its maximum */
  gemm_tile *tile;
} gemm_path;

/* The paths that this machine has, narrowest first; the widest is used until another is chosen. */
uint32_t gemm_path_count(void);
const gemm_path *gemm_path_at(uint32_t i);
void gemm_choose_path(const gemm_path *path);
const gemm_path *gemm_chosen_path(void);

#endif
