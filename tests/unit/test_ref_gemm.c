/*
 * Matrix products of the reference executor: the bits of one sum after the other, however the
 * matrices lie, whichever path runs and with however many threads.
 */
#include "ref/kernels/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/gemm_tile.h"
#include "ref/kernels/storage.h"
#include "ref/kernels/threads.h"

enum { BATCH = 2, GAP = 3 };

/* ---- tensors -------------------------------------------------------------------------------- */

/* The layout of a tensor of `count` matrices. */
typedef enum lie { DENSE, GAPS, TURNED, SPLIT_ROWS, LIES } lie;

typedef struct test_tensor {
  exec_tensor t;
  char *storage;
  size_t bytes;
} test_tensor;

static exec_tensor shape_of(lie how, dtype type, int64_t count, int64_t rows, int64_t columns)
{
  exec_tensor t = { .type = (uint8_t)type,
                    .rank = 3,
                    .shape = { count, rows, columns },
                    .strides = { rows * columns, columns, 1 } };
  if (how == GAPS) {
    t.strides[1] = columns + GAP;
    t.strides[0] = rows * t.strides[1] + GAP;
  } else if (how == TURNED) {
    t.strides[1] = 1;
    t.strides[2] = rows;
  } else if (how == SPLIT_ROWS &&
             rows % 2 == 0) { /* [count, 2, rows / 2, columns], of no one stride */
    t.rank = 4;
    t.shape[1] = 2;
    t.shape[2] = rows / 2;
    t.shape[3] = columns;
    t.strides[1] = columns;
    t.strides[2] = 2 * columns;
    t.strides[3] = 1;
  }
  return t;
}

static test_tensor tensor_new(lie how, dtype type, int64_t count, int64_t rows, int64_t columns,
                              uint32_t seed)
{
  test_tensor x = { .t = shape_of(how, type, count, rows, columns) };
  int64_t last = 0;
  for (int d = 0; d < x.t.rank; d++)
    last += (x.t.shape[d] - 1) * x.t.strides[d];
  x.bytes = (size_t)((last + 1) * dtype_bytes(type));
  x.t.data = x.storage = malloc(x.bytes);
  assert_non_null(x.storage);
  memset(x.storage, 0x5a, x.bytes);
  for (int64_t i = 0; i < exec_elements(&x.t); i++) {
    seed = seed * 1664525u + 1013904223u;
    ref_store(&x.t, i, (real)((int32_t)seed >> 8) / (1 << 22));
  }
  return x;
}

static void tensor_free(test_tensor *x)
{
  free(x->storage);
}

/* ---- one product ---------------------------------------------------------------------------- */

typedef struct product_case {
  int64_t m, n, k, batch;
  gemm_layout layout;
  dtype operand_type, result_type;
  lie operands, result;
  bool add, bias;
} product_case;

typedef struct product_operands {
  test_tensor a, b, bias, c;
} product_operands;

static product_operands operands_new(const product_case *p)
{
  bool a_turned = p->layout == GEMM_TN, b_turned = p->layout == GEMM_NT;
  return (product_operands){
    tensor_new(p->operands, p->operand_type, p->batch, a_turned ? p->k : p->m,
               a_turned ? p->m : p->k, 1),
    tensor_new(p->operands, p->operand_type, p->batch, b_turned ? p->n : p->k,
               b_turned ? p->k : p->n, 2),
    tensor_new(DENSE, p->operand_type, 1, 1, p->n, 3),
    tensor_new(p->result, p->result_type, p->batch, p->m, p->n, 4),
  };
}

static void operands_free(product_operands *o)
{
  tensor_free(&o->a);
  tensor_free(&o->b);
  tensor_free(&o->bias);
  tensor_free(&o->c);
}

/* What gemm.h promises, word for word. */
static void naive(const product_case *p, const product_operands *o)
{
  for (int64_t s = 0; s < p->batch; s++)
    for (int64_t i = 0; i < p->m; i++)
      for (int64_t j = 0; j < p->n; j++) {
        real sum = 0;
        for (int64_t k = 0; k < p->k; k++) {
          int64_t a = p->layout == GEMM_TN ? k * p->m + i : i * p->k + k;
          int64_t b = p->layout == GEMM_NT ? j * p->k + k : k * p->n + j;
          real product =
              ref_load(&o->a.t, s * p->m * p->k + a) * ref_load(&o->b.t, s * p->k * p->n + b);
          sum = sum + product;
        }
        int64_t at = (s * p->m + i) * p->n + j;
        if (p->bias) sum = sum + ref_load(&o->bias.t, j);
        if (p->add) sum = sum + ref_load(&o->c.t, at);
        ref_store(&o->c.t, at, sum);
      }
}

static void kernel(const product_case *p, const product_operands *o)
{
  plan_call call = { .kind = KERNEL_GEMM,
                     .dims = { p->m, p->n, p->k, p->batch },
                     .scalars = { [GEMM_LAYOUT] = p->layout, [GEMM_ADD] = p->add } };
  exec_tensor reads[] = { o->a.t, o->b.t, o->bias.t };
  ref_gemm(&(exec_call){ .call = &call,
                         .reads = reads,
                         .read_count = p->bias ? 3 : 2,
                         .writes = &o->c.t,
                         .write_count = 1 });
}

/* Every path, with one thread and with two; gaps between the elements stay as they are. */
static void check(product_case p)
{
  product_operands expected = operands_new(&p);
  naive(&p, &expected);
  for (uint32_t path = 0; path < gemm_path_count(); path++)
    for (uint32_t threads = 1; threads <= 2; threads++) {
      product_operands o = operands_new(&p);
      gemm_choose_path(gemm_path_at(path));
      ref_set_threads(threads);
      kernel(&p, &o);
      if (memcmp(o.c.storage, expected.c.storage, o.c.bytes) != 0)
        fail_msg("m %d n %d k %d layout %d path %s threads %u", (int)p.m, (int)p.n, (int)p.k,
                 (int)p.layout, gemm_path_at(path)->name, threads);
      operands_free(&o);
    }
  ref_set_threads(1);
  operands_free(&expected);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static const product_case sizes[] = {
  { .m = 1, .n = 1, .k = 1, .batch = 1 },     { .m = 3, .n = 5, .k = 7, .batch = 1 },
  { .m = 8, .n = 32, .k = 16, .batch = 1 },   { .m = 33, .n = 65, .k = 129, .batch = 1 },
  { .m = 130, .n = 9, .k = 300, .batch = 1 }, { .m = 12, .n = 530, .k = 259, .batch = 1 },
  { .m = 515, .n = 17, .k = 5, .batch = 1 },  { .m = 6, .n = 10, .k = 8, .batch = BATCH },
};

static void all_sizes_in_all_layouts(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int layout = GEMM_NT; layout <= GEMM_TN; layout++)
      for (int add = 0; add <= 1; add++) {
        product_case p = sizes[i];
        p.layout = (gemm_layout)layout;
        p.operand_type = p.result_type = DTYPE_FP32;
        p.add = add != 0;
        check(p);
      }
}

static void bf16_is_rounded_once(void **state)
{
  (void)state;
  for (int layout = GEMM_NT; layout <= GEMM_TN; layout++)
    for (int type = DTYPE_BF16; type <= DTYPE_FP32; type++)
      for (int add = 0; add <= 1; add++)
        check((product_case){ .m = 20,
                              .n = 37,
                              .k = 270,
                              .batch = 1,
                              .layout = (gemm_layout)layout,
                              .operand_type = DTYPE_BF16,
                              .result_type = (dtype)type,
                              .add = add != 0 });
}

static void a_bias_goes_to_every_row(void **state)
{
  (void)state;
  for (int64_t batch = 1; batch <= BATCH; batch++)
    check((product_case){ .m = 5,
                          .n = 40,
                          .k = 33,
                          .batch = batch,
                          .operand_type = DTYPE_BF16,
                          .result_type = DTYPE_BF16,
                          .bias = true });
}

static void strides_change_nothing(void **state)
{
  (void)state;
  for (int layout = GEMM_NT; layout <= GEMM_TN; layout++)
    for (int operands = DENSE; operands < LIES; operands++)
      for (int result = DENSE; result < LIES; result++)
        check((product_case){ .m = 10,
                              .n = 34,
                              .k = 18,
                              .batch = BATCH,
                              .layout = (gemm_layout)layout,
                              .operand_type = DTYPE_FP32,
                              .result_type = DTYPE_FP32,
                              .operands = (lie)operands,
                              .result = (lie)result,
                              .add = true });
}

/* A sum in another order would differ: the ones are lost one by one, in order. */
static void the_order_is_ascending(void **state)
{
  (void)state;
  enum { DEPTH = 300 };
  static float a[DEPTH], ones[DEPTH], c;
  for (int k = 0; k < DEPTH; k++) {
    a[k] = k == 0 ? 16777216.0f : k == DEPTH - 1 ? -16777216.0f : 1;
    ones[k] = 1;
  }
  ref_matrix row = { a, DTYPE_FP32, DEPTH, 1 }, column = { ones, DTYPE_FP32, 1, 1 };
  ref_gemm_part(&(ref_product){
      .m = 1, .n = 1, .k = DEPTH, .a = row, .b = column, .c = { &c, DTYPE_FP32, 1, 1 } });
  assert_true(c == 0);
}

static void an_empty_sum_is_zero(void **state)
{
  (void)state;
  check((product_case){
      .m = 4, .n = 5, .k = 0, .batch = 1, .operand_type = DTYPE_FP32, .result_type = DTYPE_FP32 });
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_sizes_in_all_layouts), cmocka_unit_test(bf16_is_rounded_once),
    cmocka_unit_test(a_bias_goes_to_every_row), cmocka_unit_test(strides_change_nothing),
    cmocka_unit_test(the_order_is_ascending),   cmocka_unit_test(an_empty_sum_is_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
