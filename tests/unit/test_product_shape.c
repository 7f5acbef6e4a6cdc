/*
 * What offsim passes to cuBLASLt for a product: here a BLAS of a few lines gets the same, and its
 * result held against that of the definition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <string.h>

#include "cuda/kernels/fast/product_shape.h"

enum { ROOM = 4096 };

typedef struct operands {
  float a[ROOM], b[ROOM], c[ROOM], addend[ROOM], bias[64];
  float expected[ROOM];
} operands;

static float *element(const fast_matrix *m, int64_t batch, int64_t i, int64_t j)
{
  return (float *)m->data + batch * m->next + i * m->row_stride + j * m->column_stride;
}

/* By the definition; c's place in `expected`. */
static void multiply(const fast_product *p, float *expected)
{
  fast_matrix to = p->c;
  to.data = expected;
  for (int64_t s = 0; s < p->batch; s++)
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t j = 0; j < p->n; j++) {
        float sum = 0;
        for (int64_t x = 0; x < p->k; x++)
          sum += *element(&p->a, s, i, x) * *element(&p->b, s, x, j);
        sum *= p->alpha;
        if (p->has_addend) sum += *element(&p->addend, s, i, j);
        if (p->has_bias) sum += *element(&p->bias, 0, 0, j);
        *element(&to, s, i, j) = sum;
      }
}

static float stored(const blas_matrix *m, const fast_matrix *of, int64_t batch, int64_t i,
                    int64_t j)
{
  int64_t row = m->transposed ? j : i, column = m->transposed ? i : j;
  assert_in_range(row, 0, m->rows - 1);
  assert_in_range(column, 0, m->columns - 1);
  return ((const float *)of->data)[batch * m->next + row + column * m->leading];
}

/* As a BLAS: matrices by columns. */
static void run_blas(const blas_product *p)
{
  const blas_shape *s = &p->shape;
  int64_t k = s->a.transposed ? s->a.rows : s->a.columns;
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t j = 0; j < s->result.columns; j++)
      for (int64_t i = 0; i < s->result.rows; i++) {
        float sum = 0;
        for (int64_t x = 0; x < k; x++)
          sum += stored(&s->a, p->a, b, i, x) * stored(&s->b, p->b, b, x, j);
        sum *= p->alpha;
        if (s->has_addend) sum += stored(&s->addend, p->addend, b, i, j);
        if (s->has_bias) sum += ((const float *)p->bias)[i];
        ((float *)p->result->data)[b * s->result.next + i + j * s->result.leading] = sum;
      }
}

static void fill(float *x, int count, int seed)
{
  for (int i = 0; i < count; i++)
    x[i] = (float)((i * 7 + seed * 13) % 11 - 5);
}

static void begin(operands *o)
{
  memset(o, 0, sizeof *o);
  fill(o->a, ROOM, 1);
  fill(o->b, ROOM, 2);
  fill(o->addend, ROOM, 3);
  fill(o->bias, 64, 4);
}

static fast_matrix matrix(float *data, int64_t rows, int64_t columns, bool turned)
{
  return (fast_matrix){ .data = data,
                        .type = DTYPE_FP32,
                        .row_stride = turned ? 1 : columns,
                        .column_stride = turned ? rows : 1,
                        .next = rows * columns };
}

static fast_product product(operands *o, const int64_t sizes[4], unsigned turned)
{
  int64_t m = sizes[0], n = sizes[1], k = sizes[2];
  return (fast_product){ .m = m,
                         .n = n,
                         .k = k,
                         .batch = sizes[3],
                         .batches = 1,
                         .a = matrix(o->a, m, k, turned & 1),
                         .b = matrix(o->b, k, n, turned & 2),
                         .c = matrix(o->c, m, n, turned & 4),
                         .addend = matrix(o->addend, m, n, turned & 4),
                         .bias = matrix(o->bias, 1, n, false),
                         .alpha = 2 };
}

static void assert_same(operands *o, const fast_product *p)
{
  blas_product blas;
  assert_true(fast_product_suits(p));
  assert_true(blas_product_of(p, &blas));
  multiply(p, o->expected);
  run_blas(&blas);
  assert_memory_equal(o->c, o->expected, sizeof o->c);
}

static const int64_t all_sizes[][4] = { { 3, 4, 5, 1 }, { 3, 4, 5, 3 }, { 1, 4, 5, 1 },
                                        { 3, 1, 5, 1 }, { 3, 4, 1, 2 }, { 2, 2, 2, 2 } };

static void layouts(void **state)
{
  static operands o;
  (void)state;
  for (size_t i = 0; i < sizeof all_sizes / sizeof all_sizes[0]; i++)
    for (unsigned turned = 0; turned < 8; turned++) {
      begin(&o);
      fast_product p = product(&o, all_sizes[i], turned);
      assert_same(&o, &p);
    }
}

static void addends(void **state)
{
  static operands o;
  (void)state;
  for (unsigned turned = 0; turned < 8; turned++) {
    begin(&o);
    fast_product p = product(&o, all_sizes[1], turned);
    p.has_addend = true;
    assert_same(&o, &p);
  }
}

static void biases(void **state)
{
  static operands o;
  (void)state;
  for (unsigned turned = 0; turned < 4; turned++) {
    begin(&o);
    fast_product p = product(&o, all_sizes[0], turned);
    p.has_bias = true;
    assert_same(&o, &p);
  }
  fast_product by_columns = product(&o, all_sizes[0], 4);
  by_columns.has_bias = true;
  assert_false(fast_product_suits(&by_columns));
}

/* Heads are side by side in a row; a gap follows each row of the result. */
static void gaps(void **state)
{
  static operands o;
  (void)state;
  begin(&o);
  fast_product p = product(&o, all_sizes[1], 0);
  p.a.row_stride = 15;
  p.a.next = 5;
  p.c.row_stride = 7;
  p.c.next = 21;
  p.addend = p.c;
  assert_same(&o, &p);
  p.c.column_stride = 2;
  assert_false(fast_product_suits(&p));
}

static void types(void **state)
{
  static operands o;
  (void)state;
  fast_product p = product(&o, all_sizes[0], 0);
  p.a.type = p.b.type = DTYPE_BF16;
  assert_true(fast_product_suits(&p));
  p.b.type = DTYPE_FP32;
  assert_false(fast_product_suits(&p));
  p.a.type = DTYPE_FP32;
  p.c.type = DTYPE_BF16;
  assert_false(fast_product_suits(&p));
}

static void tensors(void **state)
{
  float data[1];
  fast_matrix m;
  exec_tensor heads = { data, DTYPE_BF16, 4, { 2, 4, 8, 16 }, { 512, 16, 64, 1 } };
  (void)state;
  assert_false(fast_matrix_of(&heads, 1, 8, 8, 16, &m));
  assert_true(fast_matrix_of(&heads, 2, 4, 8, 16, &m));
  assert_int_equal(m.next_batch, 512);
  assert_int_equal(m.next, 16);
  assert_int_equal(m.row_stride, 64);
  assert_int_equal(m.column_stride, 1);
  assert_false(fast_matrix_of(&heads, 2, 4, 8, 15, &m));
}

/* Factors in fp8 are along k in pieces of 16 bytes; at most one is in e5m2. */
static void fp8(void **state)
{
  static operands o;
  const int64_t sizes[] = { 16, 32, 16, 1 };
  (void)state;
  fast_product p = product(&o, sizes, 2);
  p.a.type = p.b.type = DTYPE_FP8;
  p.a.data = p.b.data = p.c.data = NULL;
  p.a.e5m2 = true;
  assert_true(fast_product_suits(&p));
  p.b.e5m2 = true;
  assert_false(fast_product_suits(&p));
  p.b.e5m2 = false;
  p.a.scaling = FAST_SCALE_1X128;
  assert_false(fast_product_suits(&p));
  p.b.scaling = FAST_SCALE_128X128;
  assert_true(fast_product_suits(&p));
  p.b = fast_transposed(p.b);
  assert_false(fast_product_suits(&p));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(layouts), cmocka_unit_test(addends), cmocka_unit_test(biases),
    cmocka_unit_test(gaps),    cmocka_unit_test(types),   cmocka_unit_test(tensors),
    cmocka_unit_test(fp8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
