#include "ref/kernels/gemm.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/fp8.h"
#include "ref/kernels/storage.h"
#include "sim/base/units.h"

ref_matrix ref_transposed(ref_matrix m)
{
  return (ref_matrix){ m.data, m.type, m.column_stride, m.row_stride };
}

/* The rest of the dimensions, consumed from the last one on. */
typedef struct rest {
  int dimension;
  int64_t size, stride;
} rest;

/* Consumes `n` elements with one stride, which it returns; -1: they have several. */
static int64_t take(const exec_tensor *t, rest *r, int64_t n)
{
  int64_t taken = 1, stride = 0;
  while (taken < n) {
    while (r->size == 1) {
      r->dimension--;
      r->size = t->shape[r->dimension];
      r->stride = t->strides[r->dimension];
    }
    int64_t part = min_i64(r->size, n / taken);
    if (r->size % part != 0 || n / taken % part != 0) return -1;
    if (taken > 1 && r->stride != stride * taken) return -1;
    if (taken == 1) stride = r->stride;
    taken *= part;
    r->size /= part;
    r->stride *= part;
  }
  return stride;
}

bool ref_strides_of(const exec_tensor *t, int dims, const int64_t *sizes, int64_t *strides)
{
  rest r = { t->rank, 1, 0 };
  for (int i = dims; i-- > 0;)
    if ((strides[i] = take(t, &r, sizes[i])) < 0) return false;
  return true;
}

static ref_matrices matrices_of(const exec_tensor *t, int64_t count, int64_t rows, int64_t columns)
{
  int64_t strides[3] = { 0 };
  assert(exec_elements(t) == count * rows * columns);
  if (exec_elements(t) == 0 || ref_strides_of(t, 3, (int64_t[]){ count, rows, columns }, strides))
    return (ref_matrices){ { t->data, (dtype)t->type, strides[1], strides[2] }, strides[0], 0, 0 };
  real *copy = ref_reals(exec_elements(t));
  return (ref_matrices){ { copy, REF_REAL_TYPE, columns, 1 }, rows * columns, copy, 0 };
}

ref_matrices ref_matrices_read(const exec_tensor *t, int64_t count, int64_t rows, int64_t columns)
{
  ref_matrices m = matrices_of(t, count, rows, columns);
  if (m.copy != NULL) ref_load_row(t, 0, exec_elements(t), m.copy);
  return m;
}

ref_matrices ref_matrices_write(const exec_tensor *t, int64_t count, int64_t rows, int64_t columns)
{
  ref_matrices m = matrices_of(t, count, rows, columns);
  m.back = t;
  return m;
}

ref_matrix ref_matrix_number(const ref_matrices *m, int64_t i)
{
  ref_matrix one = m->first;
  if (one.data != NULL) one.data = (char *)one.data + i * m->next * dtype_bytes(one.type);
  return one;
}

void ref_matrices_release(ref_matrices *m)
{
  if (m->copy != NULL && m->back != NULL)
    ref_store_row(m->back, 0, exec_elements(m->back), m->copy);
  free(m->copy);
}

/* ---- operands of a call, as its layout says ------------------------------------------------- */

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

/* Joins copies of slices along the outer or the inner dimension into one matrix. */
static ref_matrices dequantized(int code, const exec_tensor *t, int64_t outer, int64_t inner,
                                bool parts_are_inner)
{
  ref_matrices m = own_matrices(1, outer, inner);
  fp8_buffer b = fp8_buffer_of(t);
  fp8_matrix part = { m.copy, outer, inner, inner, 1 };
  int64_t *divided = parts_are_inner ? &part.inner : &part.outer;
  assert(*divided % b.parts == 0);
  *divided /= b.parts;
  int64_t next = parts_are_inner ? part.inner : part.outer * inner;
  for (int64_t i = 0; i < b.parts; i++, part.data += next)
    fp8_dequantize(code, b.data + i * b.part_bytes, b.part_bytes, &part);
  return m;
}

/* The tiles of a weight run along the product: along the columns of the operand, or across them. */
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

/* In memory: k x m or m x k. What tensor-parallel ranks have gathered is split along m, or in the product of
 * a weight's gradient along k. */
ref_matrices ref_left_operand(const exec_call *c, int64_t count, int64_t m, int64_t k)
{
  const exec_tensor *t = &c->reads[0];
  bool turned = layout_of(c) == GEMM_TN, along_k = layout_of(c) == GEMM_TN_COPIES;
  int64_t rows = turned ? k : m, columns = turned ? m : k;
  ref_matrices a = fp8_code(c) == FP8_NONE ? ref_matrices_read(t, count, rows, columns)
                                           : dequantized(fp8_code(c), t, rows, columns, along_k);
  assert(count == 1 || fp8_code(c) == FP8_NONE);
  if (turned) a.first = ref_transposed(a.first);
  return a;
}

/* In memory: n x k or k x n. An operand that tensor-parallel ranks have gathered is split along k;
 * an operand that is not in fp8 is a weight. */
ref_matrices ref_right_operand(const exec_call *c, int64_t count, int64_t k, int64_t n)
{
  const exec_tensor *t = &c->reads[1];
  bool turned = layout_of(c) == GEMM_NT || layout_of(c) == GEMM_TN_COPIES;
  int64_t rows = turned ? n : k, columns = turned ? k : n;
  int code = fp8_code(c) % FP8_SCALINGS; /* e4m3, also beside an e5m2 operand */
  ref_matrices b = code == FP8_NONE       ? ref_matrices_read(t, count, rows, columns)
                   : t->type == DTYPE_FP8 ? dequantized(code, t, count * rows, columns, turned)
                                          : rounded_weights(code, t, count, rows, columns, !turned);
  if (turned) b.first = ref_transposed(b.first);
  return b;
}
