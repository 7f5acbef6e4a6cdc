/*
 * Matrix products by cuBLASLt: C = alpha A B [+ addend] [+ bias], sums in fp32.
 *
 * Which of cuBLASLt's algorithms multiplies depends on sizes, types, strides and alignment alone:
 * it is the first that the library's heuristic names, among those that add parts of a sum in a
 * fixed order.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_PRODUCT_H
#define OFFSIM_CUDA_KERNELS_FAST_PRODUCT_H

#include "cuda/kernels/kernel.h"

/* What NVIDIA recommends for Hopper; room for the parts of sums that are split. */
enum { FAST_PRODUCT_WORKSPACE = 32 << 20 };

/* How numbers in fp8 are scaled: sim/plan/fp8_copy.h, of tiles as seen along k. */
typedef enum fast_scaling {
  FAST_SCALE_NONE,
  FAST_SCALE_MATRIX, /* one number */
  FAST_SCALE_1X128,
  FAST_SCALE_128X128
} fast_scaling;

/* Matrices of one shape: element (i, j) of number b is element i * row_stride + j * column_stride +
 * b * next of `data`; there may be several such batches, `next_batch` apart. A stride of a
 * dimension of size 1 may be anything. */
typedef struct fast_matrix {
  void *data; /* on the device; NULL: there is none */
  dtype type;
  bool e5m2; /* DTYPE_FP8: e5m2, not e4m3 */
  int64_t row_stride, column_stride, next, next_batch;
  fast_scaling scaling;
  const void *scales;
} fast_matrix;

typedef struct fast_product {
  int64_t m, n, k, batch, batches;
  fast_matrix a;      /* m x k */
  fast_matrix b;      /* k x n */
  fast_matrix c;      /* m x n */
  fast_matrix addend; /* m x n; may be c itself */
  fast_matrix bias;   /* 1 x n, for every row and every matrix of the batch */
  bool has_addend, has_bias;
  float alpha;
} fast_product;

/* `t` as `batches` times `batch` matrices; false: its strides do not allow that. */
bool fast_matrix_of(const exec_tensor *t, int64_t batches, int64_t batch, int64_t rows,
                    int64_t columns, fast_matrix *m);
fast_matrix fast_transposed(fast_matrix m);

/* Whether cuBLASLt can do it on Hopper. */
bool fast_product_suits(const fast_product *p);
/* `workspace` has FAST_PRODUCT_WORKSPACE bytes. */
void fast_run_product(cuda_call *c, const fast_product *p, void *workspace);

#endif
