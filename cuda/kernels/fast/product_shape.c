#include "cuda/kernels/fast/product_shape.h"

#include <string.h>

#include "ref/kernels/gemm.h"
#include "sim/base/units.h"

bool fast_matrix_of(const exec_tensor *t, int64_t batches, int64_t batch, int64_t rows,
                    int64_t columns, fast_matrix *m)
{
  const int64_t sizes[] = { batches, batch, rows, columns };
  int64_t strides[4] = { 0 }, elements = exec_elements(t);
  if (elements != batches * batch * rows * columns || elements == 0 ||
      !ref_strides_of(t, 4, sizes, strides))
    return false;
  *m = (fast_matrix){ .data = t->data,
                      .type = (dtype)t->type,
                      .next_batch = strides[0],
                      .next = strides[1],
                      .row_stride = strides[2],
                      .column_stride = strides[3] };
  return true;
}

fast_matrix fast_transposed(fast_matrix m)
{
  int64_t rows = m.row_stride;
  m.row_stride = m.column_stride;
  m.column_stride = rows;
  return m;
}

static int64_t alignment_of(const fast_matrix *m)
{
  uintptr_t address = (uintptr_t)m->data;
  int64_t alignment = BLAS_ALIGNMENT;
  while (address % (uintptr_t)alignment != 0)
    alignment /= 2;
  return alignment;
}

/* Elements of a row are side by side; a single column with gaps is as many rows. */
static bool is_by_rows(const fast_matrix *m, int64_t rows, int64_t columns)
{
  return columns > 1 ? m->column_stride == 1 : rows > 1 && m->row_stride > 1;
}

/* `rows` x `columns`, of which either follow each other. */
static bool stored(const fast_matrix *m, int64_t rows, int64_t columns, blas_matrix *to)
{
  bool by_rows = is_by_rows(m, rows, columns);
  int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns;
  int64_t stride = by_rows ? m->column_stride : m->row_stride;
  int64_t leading = by_rows ? m->row_stride : m->column_stride;
  if (inner > 1 && stride != 1) return false;
  if (outer == 1) leading = inner;
  to->rows = inner;
  to->columns = outer;
  to->leading = leading;
  to->transposed = by_rows;
  to->next = m->next;
  to->type = (int32_t)m->type;
  to->e5m2 = m->e5m2;
  to->scaling = (int32_t)m->scaling;
  to->alignment = alignment_of(m);
  return leading >= inner;
}

/* The transposed product, which has no bias for every row. */
static fast_product turned(const fast_product *p)
{
  fast_product t = *p;
  t.m = p->n;
  t.n = p->m;
  t.a = fast_transposed(p->b);
  t.b = fast_transposed(p->a);
  t.c = fast_transposed(p->c);
  t.addend = fast_transposed(p->addend);
  return t;
}

static bool shape_of(const fast_product *p, blas_shape *s)
{
  memset(s, 0, sizeof *s);
  s->batch = p->batch;
  s->has_addend = p->has_addend;
  s->has_bias = p->has_bias;
  if (p->has_bias) s->bias_alignment = alignment_of(&p->bias);
  if (!stored(&p->a, p->m, p->k, &s->a) || !stored(&p->b, p->k, p->n, &s->b) ||
      !stored(&p->c, p->m, p->n, &s->result))
    return false;
  s->addend = s->result;
  if (p->has_addend && !stored(&p->addend, p->m, p->n, &s->addend)) return false;
  return s->result.transposed == 0 && s->addend.transposed == 0;
}

/* A bias is one number for each column of C, for each row of what BLAS sees. */
static bool bias_fits(const fast_product *p, bool by_rows)
{
  return !p->has_bias ||
         (by_rows && p->bias.type == p->c.type && (p->n == 1 || p->bias.column_stride == 1));
}

bool blas_product_of(const fast_product *p, blas_product *to)
{
  bool by_rows = is_by_rows(&p->c, p->m, p->n);
  fast_product t = by_rows ? turned(p) : *p;
  *to = (blas_product){ .a = by_rows ? &p->b : &p->a,
                        .b = by_rows ? &p->a : &p->b,
                        .addend = p->has_addend ? &p->addend : &p->c,
                        .result = &p->c,
                        .bias = p->bias.data,
                        .alpha = p->alpha };
  return bias_fits(p, by_rows) && shape_of(&t, &to->shape);
}

/* ---- what cuBLASLt multiplies ---- */

/* Types of both factors, and of the result beside them. */
typedef struct type_row {
  dtype factors, result;
} type_row;

static bool types_fit(const fast_product *p)
{
  static const type_row rows[] = {
    { DTYPE_BF16, DTYPE_BF16 }, { DTYPE_BF16, DTYPE_FP32 }, { DTYPE_FP16, DTYPE_FP16 },
    { DTYPE_FP16, DTYPE_FP32 }, { DTYPE_FP32, DTYPE_FP32 }, { DTYPE_FP8, DTYPE_BF16 },
    { DTYPE_FP8, DTYPE_FP16 },  { DTYPE_FP8, DTYPE_FP32 },
  };
  if (p->a.type != p->b.type || (p->has_addend && p->addend.type != p->c.type)) return false;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (p->a.type == rows[i].factors && p->c.type == rows[i].result) return true;
  return false;
}

/* In fp8 both factors are stored along k, in pieces of 16 bytes; one of them at most is e5m2. */
static bool fp8_fits(const fast_product *p, const blas_shape *s)
{
  if (p->a.type != DTYPE_FP8) return true;
  bool blocks = s->a.scaling > FAST_SCALE_MATRIX;
  if (p->a.e5m2 && p->b.e5m2) return false;
  if (s->a.transposed == 0 || s->b.transposed != 0 || s->batch != 1) return false;
  if (s->a.scaling == FAST_SCALE_128X128 && s->b.scaling == FAST_SCALE_128X128) return false;
  if (blocks != (s->b.scaling > FAST_SCALE_MATRIX)) return false;
  return s->a.alignment == BLAS_ALIGNMENT && s->b.alignment == BLAS_ALIGNMENT &&
         s->a.leading % BLAS_ALIGNMENT == 0 && s->b.leading % BLAS_ALIGNMENT == 0 &&
         s->result.leading * dtype_bytes(p->c.type) % BLAS_ALIGNMENT == 0 &&
         s->result.alignment == BLAS_ALIGNMENT;
}

bool fast_product_suits(const fast_product *p)
{
  blas_product b;
  return p->m > 0 && p->n > 0 && p->k > 0 && p->batch > 0 && types_fit(p) &&
         blas_product_of(p, &b) && fp8_fits(p, &b.shape);
}
