/* Software rounding against a search for the nearest number, and elements by strides. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ref/kernels/storage.h"

/* ---- number formats -------------------------------------------------------------------------- */

/* What a code is worth, from the words of the format's definition; NaN and infinities are none. */
static bool finite_value(number_format f, uint32_t code, double *value)
{
  int bias = (1 << (f.exponent_bits - 1)) - 1;
  int exponent = (int)(code >> f.mantissa_bits & ((1U << f.exponent_bits) - 1));
  double fraction =
      (double)(code & ((1U << f.mantissa_bits) - 1)) / (double)(1U << f.mantissa_bits);
  *value = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, exponent - bias);
  if (code >> (f.exponent_bits + f.mantissa_bits)) *value = -*value;
  return (code & ~(1U << (f.exponent_bits + f.mantissa_bits))) <= f.largest;
}

static void check_value(number_format f, uint32_t code)
{
  double value;
  uint32_t sign = 1U << (f.exponent_bits + f.mantissa_bits);
  if (finite_value(f, code, &value))
    assert_true(exact_bits(format_value(f, code)) == exact_bits(value));
  else if (f.infinity != 0 && (code & (sign - 1)) == f.infinity)
    assert_true(format_value(f, code) == (code & sign ? -1 : 1) * exact_infinity());
  else
    assert_true(isnan(format_value(f, code)));
}

/* Around the middle between a number and the next: below, at (to the even one), above. */
static void check_rounding(number_format f, uint32_t code)
{
  double value, next;
  uint32_t sign = 1U << (f.exponent_bits + f.mantissa_bits);
  if ((code & (sign - 1)) >= f.largest || !finite_value(f, code, &value) ||
      !finite_value(f, code + 1, &next))
    return;
  double middle = (value + next) / 2;
  assert_int_equal(format_code(f, value), code);
  assert_int_equal(format_code(f, nextafter(middle, value)), code);
  assert_int_equal(format_code(f, middle), code & 1 ? code + 1 : code);
  assert_int_equal(format_code(f, nextafter(middle, next)), code + 1);
}

static void every_code(void **state)
{
  (void)state;
  const number_format formats[] = { format_bf16(), format_fp16(), format_e4m3(), format_e5m2() };
  for (int i = 0; i < 4; i++)
    for (uint32_t code = 0; code < 2U << (formats[i].exponent_bits + formats[i].mantissa_bits);
         code++) {
      check_value(formats[i], code);
      check_rounding(formats[i], code);
    }
}

static void too_large(void **state)
{
  (void)state;
  const double inf = exact_infinity();
  assert_int_equal(format_code(format_e4m3(), 448), 0x7e);
  assert_int_equal(format_code(format_e4m3(), 1e30), 0x7e);
  assert_int_equal(format_code(format_e4m3(), -inf), 0xfe);
  assert_int_equal(format_code(format_e4m3(), exact_nan()), 0x7f);
  assert_int_equal(format_code(format_e5m2(), 57344), 0x7b);
  assert_int_equal(format_code(format_e5m2(), 65536), 0x7b);
  assert_int_equal(format_code(format_e5m2(), -inf), 0xfb);
  assert_true(isinf(format_value(format_e5m2(), 0x7c)));
  assert_int_equal(format_code(format_fp16(), 65519), 0x7bff);
  assert_int_equal(format_code(format_fp16(), 65520), 0x7c00);
  assert_int_equal(format_code(format_fp16(), -1e300), 0xfc00);
  assert_int_equal(format_code(format_bf16(), 1e300), 0x7f80);
  assert_int_equal(format_code(format_bf16(), exact_nan()), 0x7fc0);
  assert_true(format_value(format_e4m3(), 0x7e) == 448 &&
              format_value(format_e5m2(), 0x7b) == 57344);
}

static float float_of_bits(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The short way from float agrees with the general one, at every bf16 number and its neighbours. */
static void bf16_from_float(void **state)
{
  (void)state;
  const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
  for (uint32_t code = 0; code < 0x10000; code++)
    for (int i = 0; i < 6; i++) {
      float x = float_of_bits(code << 16 | low[i]);
      assert_int_equal(bf16_code(x), isnan(x) ? 0x7fc0 : format_code(format_bf16(), (double)x));
      if (i == 0 && !isnan(x)) assert_int_equal(bf16_code(bf16_value((uint16_t)code)), code);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* [3, 2, 4] seen in the order of its last, first and middle dimension. */
static exec_tensor permuted(void *data, dtype type)
{
  return (exec_tensor){
    .data = data, .type = (uint8_t)type, .rank = 3, .shape = { 4, 3, 2 }, .strides = { 1, 8, 4 }
  };
}

static void elements_by_number(void **state)
{
  (void)state;
  int64_t data[24];
  for (int i = 0; i < 24; i++)
    data[i] = i;
  exec_tensor t = permuted(data, DTYPE_INT64);
  assert_int_equal(exec_elements(&t), 24);
  assert_false(exec_is_contiguous(&t));
  for (int64_t a = 0, i = 0; a < 4; a++)
    for (int64_t b = 0; b < 3; b++)
      for (int64_t c = 0; c < 2; c++, i++)
        assert_int_equal(ref_load_int(&t, i), a + 8 * b + 4 * c);
}

static const dtype floats[] = { DTYPE_BF16, DTYPE_FP16, DTYPE_FP32, DTYPE_FP64 };

/* Rows from any element on, of any length, agree with single elements and touch nothing else. */
static void rows_agree_with_elements(void **state)
{
  (void)state;
  for (int k = 0; k < 4; k++)
    for (int64_t first = 0; first < 24; first++)
      for (int64_t count = 0; first + count <= 24; count++) {
        double data[24] = { 0 }, single[24] = { 0 };
        real row[24], back[24];
        exec_tensor t = permuted(data, floats[k]), u = permuted(single, floats[k]);
        for (int64_t i = 0; i < count; i++) {
          row[i] = (real)(i + 1) / 8;
          ref_store(&u, first + i, row[i]);
        }
        ref_store_row(&t, first, count, row);
        assert_memory_equal(data, single, sizeof data);
        ref_load_row(&t, first, count, back);
        for (int64_t i = 0; i < count; i++)
          assert_true(back[i] == row[i] && ref_load(&t, first + i) == row[i]);
      }
}

static void repeated_elements(void **state)
{
  (void)state;
  float data[3] = { 1, 2, 3 };
  real row[6];
  exec_tensor t = {
    .data = data, .type = DTYPE_FP32, .rank = 2, .shape = { 2, 3 }, .strides = { 0, 1 }
  };
  ref_load_row(&t, 0, 6, row);
  for (int i = 0; i < 6; i++)
    assert_true(row[i] == (real)data[i % 3]);
  exec_tensor one = { .data = data, .type = DTYPE_FP32, .rank = 0 };
  assert_true(exec_elements(&one) == 1 && ref_load(&one, 0) == 1);
}

static void copies_convert(void **state)
{
  (void)state;
  const int64_t large = INT64_C(0x7fffffffffffff01);
  int64_t from = large, to = 0;
  float number = 0;
  uint16_t small = 0;
  exec_tensor a = { .data = &from, .type = DTYPE_INT64 }, b = { .data = &to, .type = DTYPE_INT64 };
  exec_tensor c = { .data = &number, .type = DTYPE_FP32 },
              d = { .data = &small, .type = DTYPE_BF16 };
  ref_copy(&a, 0, &b, 0);
  assert_true(to == large);
  from = 7;
  ref_copy(&a, 0, &c, 0);
  assert_true(number == 7);
  number = 0x1.03p0f;
  ref_copy(&c, 0, &d, 0);
  assert_int_equal(small, 0x3f82); /* a tie, to even */
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_code),
    cmocka_unit_test(too_large),
    cmocka_unit_test(bf16_from_float),
    cmocka_unit_test(elements_by_number),
    cmocka_unit_test(rows_agree_with_elements),
    cmocka_unit_test(repeated_elements),
    cmocka_unit_test(copies_convert),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
