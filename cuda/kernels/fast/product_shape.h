/*
 * A product as BLAS sees it: matrices stored by columns, D[m, n] = op(A)[m, k] op(B)[k, n]. One
 * whose result is stored by rows becomes the product of the transposed matrices.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_PRODUCT_SHAPE_H
#define OFFSIM_CUDA_KERNELS_FAST_PRODUCT_SHAPE_H

#include "cuda/kernels/fast/product.h"

/* As stored: rows, which follow each other, and columns. */
typedef struct blas_matrix {
  int64_t rows, columns, leading, next;
  int32_t type; /* dtype; e5m2 differs from e4m3 */
  int32_t e5m2;
  int32_t transposed; /* op */
  int32_t scaling;    /* fast_scaling */
  int64_t alignment;  /* of the address: a power of two up to BLAS_ALIGNMENT */
} blas_matrix;

enum { BLAS_ALIGNMENT = 16 };

/* Everything that the choice of an algorithm depends on. Compared as bytes: made from zeros. */
typedef struct blas_shape {
  int64_t batch;
  blas_matrix a, b, addend, result; /* without an addend: the result */
  int32_t has_addend, has_bias;
  int64_t bias_alignment; /* 0: none */
} blas_shape;

/* The shape, and the operands in the order of BLAS. */
typedef struct blas_product {
  blas_shape shape;
  const fast_matrix *a, *b, *addend, *result;
  const void *bias;
  float alpha;
} blas_product;

/* False: there is none. `p` must live as long as *to. */
bool blas_product_of(const fast_product *p, blas_product *to);

#endif
