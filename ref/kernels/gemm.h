/*
 * Matrix products of a fixed order.
 *
 * Each element of the result is one sum in `real`, which starts at 0 and takes its terms by
 * ascending k; a product is rounded, then the sum. Then the addend, if there is one, is added, and
 * the result rounded once to its type. No bit depends on anything else: not on the blocking, the
 * width of a vector, the number of threads or the layout of the matrices.
 */
#ifndef OFFSIM_REF_KERNELS_GEMM_H
#define OFFSIM_REF_KERNELS_GEMM_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

/* The type of `real`. */
#define REF_REAL_TYPE (sizeof(real) == sizeof(float) ? DTYPE_FP32 : DTYPE_FP64)

/* Element (i, j) is element i * row_stride + j * column_stride of `data`. */
typedef struct ref_matrix {
  void *data; /* the element (0, 0); the caller's */
  dtype type;
  int64_t row_stride, column_stride;
} ref_matrix;

/* c = a b [+ addend]. */
typedef struct ref_product {
  int64_t m, n, k;
  ref_matrix a;      /* m x k */
  ref_matrix b;      /* k x n */
  ref_matrix addend; /* m x n; data NULL: none. May be c itself; row_stride 0: a bias */
  ref_matrix c;      /* m x n, overlapping neither a nor b */
} ref_product;

void ref_gemm_part(const ref_product *p);

ref_matrix ref_transposed(ref_matrix m);

/* An operand of the executor as matrices of one shape, one after the other. If its strides do not
 * allow that, its elements are copied; release writes them back if they are a result. */
typedef struct ref_matrices {
  ref_matrix first;
  int64_t next;            /* elements from a matrix to the next */
  real *copy;              /* NULL: the operand itself */
  const exec_tensor *back; /* where release puts the copy; NULL: nowhere */
} ref_matrices;

/* The strides of a tensor viewed as [sizes], 0 where a size is 1; false: there are none. It reads
 * no element. */
bool ref_strides_of(const exec_tensor *t, int dims, const int64_t *sizes, int64_t *strides);
/* `rows` and `columns` of one matrix. */
ref_matrices ref_matrices_read(const exec_tensor *t, int64_t count, int64_t rows, int64_t columns);
/* For a result: the old contents are not read. */
ref_matrices ref_matrices_write(const exec_tensor *t, int64_t count, int64_t rows, int64_t columns);
/* The first two reads of a gemm or a grouped_gemm as m x k and k x n, by the call's layout; fp8
 * operands as their numbers. If the call has the scalar fp8, a second operand that is not in fp8 is
 * a weight: `count` of them, each quantised separately. */
ref_matrices ref_left_operand(const exec_call *c, int64_t count, int64_t m, int64_t k);
ref_matrices ref_right_operand(const exec_call *c, int64_t count, int64_t k, int64_t n);
ref_matrix ref_matrix_number(const ref_matrices *m, int64_t i);
void ref_matrices_release(ref_matrices *m);

#endif
