#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/gemm.h"
#include "ref/kernels/storage.h"
#include "sim/base/units.h"

/* The dimension that is being used up, from the last one on. */
typedef struct rest {
  int dimension;
  int64_t size, stride;
} rest;

/* Uses up `n` elements at one distance, which it returns; -1: they lie at several. */
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
