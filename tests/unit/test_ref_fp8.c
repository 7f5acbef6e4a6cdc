/*
 * Copies of matrices in fp8: their scales, their numbers, and products that read them.
 */
#include "ref/kernels/fp8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

enum { ROWS = 6, COLUMNS = 300, BYTES = 1 << 16 };

static const fp8_scaling scalings[] = { FP8_UNIT, FP8_TENSOR, FP8_BLOCKS, FP8_MX };
enum { SCALING_COUNT = sizeof scalings / sizeof *scalings };

static real noise(int64_t i)
{
  uint32_t z = (uint32_t)i * 2654435761u;
  z = (z ^ z >> 15) * 2246822519u;
  return (real)((int32_t)(z ^ z >> 13) >> 8) / (1 << 23);
}

static void fill(real *x, int64_t count, int64_t seed)
{
  for (int64_t i = 0; i < count; i++)
    x[i] = noise(seed + i);
}

static fp8_matrix matrix_of(real *data, int64_t rows, int64_t columns)
{
  return (fp8_matrix){ data, rows, columns, columns, 1 };
}

/* ---- copies --------------------------------------------------------------------------------- */

/* A number's distance to the nearest one of e4m3 is at most 1 / 16 of it, or of half the smallest
 * normal number of its tile; scales that are powers of two leave up to a factor of two of the range
 * unused. */
static void numbers_come_back(void **state)
{
  (void)state;
  static real x[ROWS * COLUMNS], back[ROWS * COLUMNS];
  static uint8_t copy[BYTES];
  fill(x, ROWS * COLUMNS, 1);
  for (int s = 1; s < SCALING_COUNT; s++) {
    fp8_matrix from = matrix_of(x, ROWS, COLUMNS), to = matrix_of(back, ROWS, COLUMNS);
    int64_t bytes = fp8_copy_bytes(scalings[s], ROWS, COLUMNS);
    fp8_quantize((int)scalings[s], &from, copy);
    fp8_dequantize((int)scalings[s], copy, bytes, &to);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
      real off = back[i] - x[i], bound = x[i] / 16;
      if (off < 0) off = -off;
      if (bound < 0) bound = -bound;
      assert_true(off <= bound + (real)1e-5);
    }
  }
}

static float scale_at(const uint8_t *copy, int64_t place)
{
  float x;
  memcpy(&x, copy + place, sizeof x);
  return x;
}

static void one_scale_for_a_tensor(void **state)
{
  (void)state;
  real x[4] = { 3, -0.5, 0, 1 };
  uint8_t copy[8];
  fp8_matrix m = matrix_of(x, 2, 2);
  fp8_quantize(FP8_TENSOR, &m, copy);
  assert_int_equal(copy[0], 0x7e); /* 448 */
  assert_int_equal(copy[2], 0);
  float times = 448.0f / 3.0f;
  assert_true(scale_at(copy, 4) == 1 / times);
  fp8_quantize(FP8_TENSOR | FP8_E5M2, &m, copy);
  assert_int_equal(copy[0], 0x7b); /* 57344 */
  memset(x, 0, sizeof x);
  fp8_quantize(FP8_TENSOR, &m, copy);
  assert_true(scale_at(copy, 4) == 1);
}

static void powers_of_two_for_blocks(void **state)
{
  (void)state;
  static real x[2 * COLUMNS];
  static uint8_t copy[BYTES];
  fp8_matrix m = matrix_of(x, 2, COLUMNS);
  x[0] = 3;             /* first block of the first row: 448 / 3 is between 128 and 256 */
  x[COLUMNS + 299] = 7; /* third block of the second: 448 / 7 is 64 */
  fp8_quantize(FP8_BLOCKS, &m, copy);
  const uint8_t *scales = copy + 2 * COLUMNS;
  assert_true(scale_at(scales, 0) == 1.0f / 128);
  assert_true(scale_at(scales, 4 * (2 * FP8_BLOCK_ROWS + 1)) == 1.0f / 64);
  assert_true(scale_at(scales, 4 * 1) == 1);
  fp8_quantize(FP8_MX, &m, copy); /* 3 / 448 is between 2^-8 and 2^-7, 7 / 448 is 2^-6 */
  assert_int_equal(scales[0], 127 - 7);
  assert_int_equal(scales[12 + 9], 127 - 6);
  assert_int_equal(scales[1], 0);
}

static void a_columnwise_copy_is_that_of_the_transposed(void **state)
{
  (void)state;
  static real x[ROWS * COLUMNS], turned[ROWS * COLUMNS];
  static uint8_t copy[BYTES], expected[BYTES];
  fill(x, ROWS * COLUMNS, 5);
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++)
      turned[j * ROWS + i] = x[i * COLUMNS + j];
  for (int s = 0; s < SCALING_COUNT; s++) {
    fp8_matrix m = matrix_of(x, ROWS, COLUMNS), t = matrix_of(turned, COLUMNS, ROWS);
    fp8_matrix columnwise = fp8_transposed(m);
    int64_t bytes = fp8_copy_bytes(scalings[s], COLUMNS, ROWS);
    fp8_quantize((int)scalings[s], &columnwise, copy);
    fp8_quantize((int)scalings[s], &t, expected);
    assert_memory_equal(copy, expected, (size_t)bytes);
  }
}

/* ---- products ------------------------------------------------------------------------------- */

static exec_tensor bytes_of(uint8_t *data, int64_t parts, int64_t bytes)
{
  return (exec_tensor){ data, DTYPE_FP8, 2, { parts, bytes }, { bytes, 1 } };
}

static exec_tensor reals_of(real *data, int64_t rows, int64_t columns)
{
  return (exec_tensor){ data, DTYPE_FP32, 2, { rows, columns }, { columns, 1 } };
}

static void run(ref_kernel *kernel, const int64_t *dims, const double *scalars,
                const exec_tensor *reads, uint32_t read_count, const exec_tensor *writes,
                uint32_t write_count)
{
  plan_call call = { .kind = 0 };
  memcpy(call.dims, dims, sizeof call.dims);
  memcpy(call.scalars, scalars, sizeof call.scalars);
  kernel(&(exec_call){ .call = &call,
                       .reads = reads,
                       .read_count = read_count,
                       .writes = writes,
                       .write_count = write_count });
}

/* Both copies of a matrix in one buffer, as of a gradient. */
static void quantize_both(int code, real *x, int64_t rows, int64_t columns, uint8_t *copies)
{
  fp8_scaling s = fp8_scaling_of(code);
  int64_t bytes = fp8_copy_bytes(s, rows, columns) + fp8_copy_bytes(s, columns, rows);
  exec_tensor to = bytes_of(copies, 1, bytes), from = reals_of(x, rows, columns);
  run(ref_quantize, (int64_t[PLAN_DIMS]){ rows * columns },
      (double[PLAN_SCALARS]){ (double)columns, code, FP8_BOTH }, &from, 1, &to, 1);
}

static void multiply(gemm_layout layout, int code, int64_t m, int64_t n, int64_t k, exec_tensor a,
                     exec_tensor b, real *c)
{
  exec_tensor reads[] = { a, b }, to = reals_of(c, m, n);
  run(ref_gemm, (int64_t[PLAN_DIMS]){ m, n, k, 1 }, (double[PLAN_SCALARS]){ layout, 0, code },
      reads, 2, &to, 1);
}

/* The numbers of a copy. */
static void numbers_of(int code, const uint8_t *copy, int64_t bytes, real *to, int64_t outer,
                       int64_t inner)
{
  fp8_matrix m = matrix_of(to, outer, inner);
  fp8_dequantize(code, copy, bytes, &m);
}

/* Weight gradient: gy [K, M], of which both copies are there, times x [K, N], gathered in parts. */
enum { M = 5, N = 40, K = 260, PARTS = 2, PART = K / PARTS };

static void columnwise_copies_multiply_along_their_rows(void **state)
{
  (void)state;
  static real gy[K * M], x[K * N], a[M * K], b[K * N], c[M * N], expected[M * N];
  static uint8_t gradient[BYTES], parts[BYTES];
  fill(gy, K * M, 11);
  fill(x, K * N, 12);
  for (int s = 0; s < SCALING_COUNT; s++) {
    int code = (int)scalings[s];
    int64_t rowwise = fp8_copy_bytes(scalings[s], K, M),
            columnwise = fp8_copy_bytes(scalings[s], M, K),
            part = fp8_copy_bytes(scalings[s], N, PART);
    quantize_both(code | FP8_E5M2, gy, K, M, gradient);
    numbers_of(code | FP8_E5M2, gradient + rowwise, columnwise, a, M, K);
    for (int p = 0; p < PARTS; p++) {
      fp8_matrix slice = fp8_transposed(matrix_of(x + p * PART * N, PART, N));
      fp8_matrix numbers = fp8_transposed(matrix_of(b + p * PART * N, PART, N));
      fp8_quantize(code, &slice, parts + p * part);
      fp8_dequantize(code, parts + p * part, part, &numbers);
    }
    multiply(GEMM_NT, code | FP8_E5M2, M, N, K, bytes_of(gradient + rowwise, 1, columnwise),
             bytes_of(parts, PARTS, part), c);
    multiply(GEMM_NN, FP8_NONE, M, N, K, reals_of(a, M, K), reals_of(b, K, N), expected);
    assert_memory_equal(c, expected, sizeof c);
  }
}

/* Per-tensor scaling: rowwise parts as they are, or turned by a kernel. */
static void turned_copies_give_the_same_product(void **state)
{
  (void)state;
  static real gy[K * M], x[K * N], c[M * N], expected[M * N];
  static uint8_t gradient[BYTES], parts[BYTES], turned[BYTES];
  fill(gy, K * M, 21);
  fill(x, K * N, 22);
  for (int code = FP8_UNIT; code <= FP8_TENSOR; code++) {
    fp8_scaling s = fp8_scaling_of(code);
    int64_t bytes = fp8_copy_bytes(s, K, M), part = fp8_copy_bytes(s, PART, N);
    quantize_both(code, gy, K, M, gradient);
    for (int p = 0; p < PARTS; p++) {
      fp8_matrix slice = matrix_of(x + p * PART * N, PART, N);
      fp8_quantize(code, &slice, parts + p * part);
    }
    memset(turned + PARTS * part, 0xa5, (size_t)part);
    exec_tensor from = bytes_of(parts, PARTS, part), to = bytes_of(turned, PARTS, part);
    run(ref_fp8_transpose, (int64_t[PLAN_DIMS]){ K * N }, (double[PLAN_SCALARS]){ N }, &from, 1,
        &to, 1);
    for (int64_t i = 0; i < part; i++)
      assert_int_equal(turned[PARTS * part + i], 0xa5); /* there is no part after the last */
    multiply(GEMM_TN, code, M, N, K, bytes_of(gradient, 1, bytes), from, expected);
    multiply(GEMM_NT, code, M, N, K, bytes_of(gradient + bytes, 1, bytes), to, c);
    assert_memory_equal(c, expected, sizeof c);
  }
}

/* A weight is quantised by the product that reads it; forward and input gradient see the same
 * numbers where its tiles are square. */
static void weights_are_rounded_in_tiles(void **state)
{
  (void)state;
  enum { OUTPUTS = 130, INPUTS = 140 };
  static real w[OUTPUTS * INPUTS], one[OUTPUTS * OUTPUTS], seen[OUTPUTS * INPUTS],
      seen_turned[INPUTS * OUTPUTS], identity[INPUTS * INPUTS];
  static uint8_t rows[BYTES], inputs[BYTES];
  fill(w, OUTPUTS * INPUTS, 31);
  for (int i = 0; i < OUTPUTS; i++)
    one[i * OUTPUTS + i] = 1;
  for (int i = 0; i < INPUTS; i++)
    identity[i * INPUTS + i] = 1;
  fp8_matrix left = matrix_of(one, OUTPUTS, OUTPUTS), wide = matrix_of(identity, INPUTS, INPUTS);
  fp8_quantize(FP8_BLOCKS, &left, rows);
  fp8_quantize(FP8_BLOCKS, &wide, inputs);
  multiply(GEMM_NN, FP8_BLOCKS, OUTPUTS, INPUTS, OUTPUTS,
           bytes_of(rows, 1, fp8_copy_bytes(FP8_BLOCKS, OUTPUTS, OUTPUTS)),
           reals_of(w, OUTPUTS, INPUTS), seen);
  multiply(GEMM_NT, FP8_BLOCKS, INPUTS, OUTPUTS, INPUTS,
           bytes_of(inputs, 1, fp8_copy_bytes(FP8_BLOCKS, INPUTS, INPUTS)),
           reals_of(w, OUTPUTS, INPUTS), seen_turned);
  int changed = 0;
  for (int i = 0; i < OUTPUTS; i++)
    for (int j = 0; j < INPUTS; j++) {
      assert_true(seen[i * INPUTS + j] == seen_turned[j * OUTPUTS + i]);
      changed += seen[i * INPUTS + j] != w[i * INPUTS + j];
    }
  assert_true(changed > OUTPUTS * INPUTS / 2);
}

/* 448 / 1e-41 is no finite number of fp32: the scale is bf16's largest number, so that 1e-41 does not become
 * infinite; e4m3 has only two bits left for it. */
static void tiny_numbers_keep_a_finite_scale(void **state)
{
  (void)state;
  real x[1] = { (real)1e-41 }, back[1];
  uint8_t copy[BYTES];
  fp8_matrix from = matrix_of(x, 1, 1), to = matrix_of(back, 1, 1);
  int64_t bytes = fp8_copy_bytes(FP8_TENSOR, 1, 1);
  fp8_quantize((int)FP8_TENSOR, &from, copy);
  fp8_dequantize((int)FP8_TENSOR, copy, bytes, &to);
  assert_true(back[0] > (real)0.7e-41 && back[0] < (real)1.5e-41);
}

/* No finite scale makes infinity fit: a tile with one keeps its numbers, and a block of MX has the largest
 * exponent. */
static void infinity_has_a_scale(void **state)
{
  (void)state;
  static real x[COLUMNS];
  static uint8_t copy[BYTES];
  fp8_matrix m = matrix_of(x, 1, COLUMNS);
  x[0] = (real)exact_infinity();
  fp8_quantize(FP8_TENSOR, &m, copy);
  assert_true(scale_at(copy + COLUMNS, 0) == 1);
  fp8_quantize(FP8_MX, &m, copy);
  assert_int_equal(copy[COLUMNS], 0xfe);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_come_back),
    cmocka_unit_test(one_scale_for_a_tensor),
    cmocka_unit_test(tiny_numbers_keep_a_finite_scale),
    cmocka_unit_test(infinity_has_a_scale),
    cmocka_unit_test(powers_of_two_for_blocks),
    cmocka_unit_test(a_columnwise_copy_is_that_of_the_transposed),
    cmocka_unit_test(columnwise_copies_multiply_along_their_rows),
    cmocka_unit_test(turned_copies_give_the_same_product),
    cmocka_unit_test(weights_are_rounded_in_tiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
