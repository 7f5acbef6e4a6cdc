/*
 * Products of the rows of each local expert, on the tensor cores of Hopper. How many rows an expert
 * has is known on the device alone (ref/kernels/moe_rows.h, the forms of an index).
 *
 *   rows      C[rows, n] = A[rows, k] W_e [+ bias_e]: W_e is [n, k] (GEMM_NT) or [k, n] (GEMM_NN);
 *             rows of no expert become zeros
 *   weights   C_e[m, n] = A[rows of e, m]^T B[rows of e, n] [+ C_e] (GEMM_TN)
 *
 * Factors are bf16, sums fp32 in a fixed order, results bf16 or fp32.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_GROUPED_H
#define OFFSIM_CUDA_KERNELS_FAST_GROUPED_H

#include "cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GROUPED_EXPERTS_MOST = 256 };

typedef enum expert_index {
  EXPERTS_EQUAL,  /* no index: equal parts, the first ones one row more where there is a rest */
  EXPERTS_COUNTS, /* int32 [experts] */
  EXPERTS_MAP,    /* int32 [tokens, 2 experts + 1] */
  EXPERTS_CELLS   /* int64 [rows] */
} expert_index;

typedef struct grouped_product {
  gemm_layout layout;
  int32_t experts;
  int32_t rows, m, n, k; /* rows of all experts; of m, n and k the two that are not rows */
  expert_index form;
  const void *index;
  int64_t index_elements;                /* EXPERTS_MAP: tokens; EXPERTS_CELLS: rows */
  const void *a, *b;                     /* b: GEMM_TN */
  void *c;                               /* not GEMM_TN */
  int64_t a_stride, b_stride, c_stride;  /* elements from row to row */
  void *of_expert[GROUPED_EXPERTS_MOST]; /* W_e, or C_e; NULL: the expert's rows stay as they are */
  const void *bias[GROUPED_EXPERTS_MOST]; /* [n]; NULL: none */
  int64_t expert_stride;                  /* elements from row to row of W_e or C_e */
  bool result_fp32, adds, has_bias;
  bool leaves_rest; /* rows of no expert stay as they are */
} grouped_product;

/* Bytes of scratch. */
int64_t fast_grouped_scratch(void);
/* Strides are multiples of 8 elements, addresses of 16 bytes. */
void fast_grouped_multiply(cuda_call *c, const grouped_product *p);

#ifdef __cplusplus
}
#endif

#endif
