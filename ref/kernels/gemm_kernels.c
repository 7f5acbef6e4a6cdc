/*
 * gemm: reads a, b and perhaps an addend: a bias of n elements, which every row takes, or a matrix
 * like c. With `add`, c takes its old contents as addend. A batch is so many products, of matrices
 * that follow each other.
 */
#include <assert.h>
#include <stddef.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/gemm.h"
#include "ref/kernels/storage.h"

enum { GEMM_M, GEMM_N, GEMM_K, GEMM_BATCH };

/* None: data is NULL. */
static ref_matrices addend_of(const exec_call *c, int64_t batch, int64_t m, int64_t n)
{
  bool adds = c->call->scalars[GEMM_ADD] != 0;
  assert(c->read_count == 2 || (c->read_count == 3 && !adds));
  if (c->read_count == 2 && !adds) return (ref_matrices){ 0 };
  const exec_tensor *t = adds ? &c->writes[0] : &c->reads[2];
  if (exec_elements(t) == batch * m * n) return ref_matrices_read(t, batch, m, n);
  ref_matrices bias = ref_matrices_read(t, 1, 1, n);
  bias.first.row_stride = bias.next = 0;
  return bias;
}

void ref_gemm(const exec_call *c)
{
  int64_t m = exec_dim(c, GEMM_M), n = exec_dim(c, GEMM_N), k = exec_dim(c, GEMM_K),
          batch = exec_dim(c, GEMM_BATCH);
  assert(c->write_count == 1);
  ref_matrices a = ref_left_operand(c, batch, m, k), b = ref_right_operand(c, batch, k, n);
  ref_matrices addend = addend_of(c, batch, m, n);
  ref_matrices to = ref_matrices_write(&c->writes[0], batch, m, n);
  for (int64_t i = 0; i < batch; i++)
    ref_gemm_part(&(ref_product){ m, n, k, ref_matrix_number(&a, i), ref_matrix_number(&b, i),
                                  ref_matrix_number(&addend, i), ref_matrix_number(&to, i) });
  ref_matrices_release(&to);
  ref_matrices_release(&addend);
  ref_matrices_release(&b);
  ref_matrices_release(&a);
}
