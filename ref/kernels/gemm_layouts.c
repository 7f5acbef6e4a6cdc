#include <assert.h>

#include "ref/kernels/fp8.h"
#include "ref/kernels/gemm.h"
#include "ref/kernels/storage.h"

static gemm_layout layout_of(const exec_call *c)
{
  return (gemm_layout)c->call->scalars[GEMM_LAYOUT];
}

static int fp8_code(const exec_call *c)
{
  return (int)c->call->scalars[GEMM_FP8];
}

static ref_matrices own_matrices(int64_t count, int64_t rows, int64_t columns)
{
  real *copy = ref_reals(count * rows * columns);
  return (ref_matrices){ { copy, REF_REAL_TYPE, columns, 1 }, rows * columns, copy, NULL };
}

/* Copies of slices of the outer or of the inner dimension, as one matrix. */
static ref_matrices dequantized(int code, const exec_tensor *t, int64_t outer, int64_t inner,
                                bool parts_are_inner)
{
  ref_matrices m = own_matrices(1, outer, inner);
  fp8_buffer b = fp8_buffer_of(t);
  fp8_matrix part = { m.copy, outer, inner, inner, 1 };
  int64_t *divided = parts_are_inner ? &part.inner : &part.outer;
  *divided /= b.parts;
  int64_t next = parts_are_inner ? part.inner : part.outer * inner;
  for (int64_t i = 0; i < b.parts; i++, part.data += next)
    fp8_dequantize(code, b.data + i * b.part_bytes, b.part_bytes, &part);
  return m;
}

/* The tiles of a weight run along the product: along the columns of what is read, or across. */
static ref_matrices rounded_weights(int code, const exec_tensor *t, int64_t count, int64_t rows,
                                    int64_t columns, bool product_across)
{
  ref_matrices m = own_matrices(count, rows, columns);
  ref_load_row(t, 0, count * rows * columns, m.copy);
  for (int64_t i = 0; i < count; i++) {
    fp8_matrix weight = { m.copy + i * m.next, rows, columns, columns, 1 };
    if (product_across) weight = fp8_transposed(weight);
    fp8_round_weight(code, &weight);
  }
  return m;
}

/* As they lie: k x m or m x k. */
ref_matrices ref_left_operand(const exec_call *c, int64_t count, int64_t m, int64_t k)
{
  const exec_tensor *t = &c->reads[0];
  bool turned = layout_of(c) == GEMM_TN;
  int64_t rows = turned ? k : m, columns = turned ? m : k;
  ref_matrices a = fp8_code(c) == FP8_NONE ? ref_matrices_read(t, count, rows, columns)
                                           : dequantized(fp8_code(c), t, rows, columns, false);
  assert(count == 1 || fp8_code(c) == FP8_NONE);
  if (turned) a.first = ref_transposed(a.first);
  return a;
}

/* As they lie: n x k or k x n. What tensor-parallel ranks have gathered is split along k; anything
 * that is not in fp8 is a weight. */
ref_matrices ref_right_operand(const exec_call *c, int64_t count, int64_t k, int64_t n)
{
  const exec_tensor *t = &c->reads[1];
  bool turned = layout_of(c) == GEMM_NT || layout_of(c) == GEMM_TN_COPIES;
  int64_t rows = turned ? n : k, columns = turned ? k : n;
  int code = fp8_code(c) % FP8_SCALINGS; /* e4m3, whatever the first operand is */
  ref_matrices b = code == FP8_NONE       ? ref_matrices_read(t, count, rows, columns)
                   : t->type == DTYPE_FP8 ? dequantized(code, t, count * rows, columns, turned)
                                          : rounded_weights(code, t, count, rows, columns, !turned);
  if (turned) b.first = ref_transposed(b.first);
  return b;
}
