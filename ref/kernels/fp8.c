#include "ref/kernels/fp8.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "ref/kernels/storage.h"

/* A tile's factor, and its code. */
typedef struct scale {
  float times, back;
} scale;

fp8_scaling fp8_scaling_of(int code)
{
  return (fp8_scaling)(code % FP8_SCALINGS);
}

static number_format format_of(int code)
{
  return code & FP8_E5M2 ? format_e5m2() : format_e4m3();
}

/* recipe_common.cuh, compute_scale_from_amax: a tile without a finite number other than 0 has scale
 * 1. */
static float largest_over(float largest, float magnitude)
{
  if (magnitude == 0 || magnitude != magnitude || magnitude == (float)exact_infinity()) return 1;
  float times = largest / magnitude;
  return times == (float)exact_infinity() ? bf16_value((uint16_t)format_bf16().largest) : times;
}

/* The power of two at or below x. */
static float power_of_two_in(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits &= 0xff800000;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* ptx_arch_spec.cuh, float_to_e8m0: the exponent of the power of two at or above x, + 127. */
static uint8_t exponent_above(float x)
{
  uint32_t bits;
  if (x != x) return 0xff;
  if (x == (float)exact_infinity()) return 0xfe;
  memcpy(&bits, &x, sizeof bits);
  uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffff;
  bool up = mantissa > 0 && exponent != 0xfe && !(exponent == 0 && mantissa <= 0x400000);
  return (uint8_t)(exponent + up);
}

static float of_exponent(uint8_t exponent)
{
  return exponent == 0xff ? (float)exact_nan() : (float)exact_power_of_two(exponent - 127);
}

static scale scale_of(int code, float magnitude)
{
  float largest = (float)format_value(format_of(code), format_of(code).largest);
  float times = largest_over(largest, magnitude);
  switch (fp8_scaling_of(code)) {
  case FP8_TENSOR: return (scale){ times, 1 / times };
  case FP8_BLOCKS: times = power_of_two_in(times); return (scale){ times, 1 / times };
  case FP8_MX: {
    float back = of_exponent(exponent_above(magnitude * (1 / largest)));
    return (scale){ 1 / back, back };
  }
  case FP8_NONE:
  case FP8_UNIT: break;
  }
  return (scale){ 1, 1 };
}

/* ---- tiles ---------------------------------------------------------------------------------- */

typedef struct tile {
  int64_t outer, inner;             /* first element */
  int64_t outer_count, inner_count; /* clipped to the matrix */
} tile;

/* A tile's size; 0: the whole matrix. */
typedef struct tile_size {
  int64_t outer, inner;
} tile_size;

static tile_size tile_size_of(int code, bool weight)
{
  switch (fp8_scaling_of(code)) {
  case FP8_BLOCKS: return (tile_size){ weight ? FP8_BLOCK : 1, FP8_BLOCK };
  case FP8_MX: return (tile_size){ 1, FP8_MX_BLOCK };
  case FP8_NONE:
  case FP8_UNIT:
  case FP8_TENSOR: break;
  }
  return (tile_size){ 0, 0 };
}

/* Moves to the next tile, row by row; false after the last. Begins with an empty tile. */
static bool next_tile(const fp8_matrix *m, tile_size size, tile *t)
{
  int64_t outer = size.outer ? size.outer : m->outer, inner = size.inner ? size.inner : m->inner;
  if (m->outer == 0 || m->inner == 0) return false;
  if (t->inner_count != 0) t->inner += inner;
  if (t->inner >= m->inner) {
    t->inner = 0;
    t->outer += outer;
  }
  if (t->outer >= m->outer) return false;
  t->outer_count = min_i64(outer, m->outer - t->outer);
  t->inner_count = min_i64(inner, m->inner - t->inner);
  return true;
}

static real *element(const fp8_matrix *m, int64_t outer, int64_t inner)
{
  return m->data + outer * m->outer_stride + inner * m->inner_stride;
}

static float magnitude_of(const fp8_matrix *m, const tile *t)
{
  float largest = 0;
  for (int64_t i = t->outer; i < t->outer + t->outer_count; i++)
    for (int64_t j = t->inner; j < t->inner + t->inner_count; j++) {
      float x = (float)*element(m, i, j);
      if (x < 0) x = -x;
      if (largest == largest && !(x <= largest)) largest = x; /* a NaN stays */
    }
  return largest;
}

static uint8_t code_of(number_format f, real x, scale s)
{
  float scaled = (float)x * s.times;
  return (uint8_t)format_code(f, (double)scaled);
}

static real number_of(number_format f, uint8_t code, scale s)
{
  return (real)((float)format_value(f, code) * s.back);
}

/* ---- scales of a copy ----------------------------------------------------------------------- */

/* Offset in bytes from the beginning of the scales. */
static int64_t scale_place(int code, const fp8_matrix *m, const tile *t)
{
  if (fp8_scaling_of(code) == FP8_MX)
    return t->outer * round_up(ceil_div(m->inner, FP8_MX_BLOCK), FP8_MX_TILE_INNER) +
           t->inner / FP8_MX_BLOCK;
  if (fp8_scaling_of(code) != FP8_BLOCKS) return 0;
  int64_t place = t->inner / FP8_BLOCK * round_up(m->outer, FP8_BLOCK_ROWS) + t->outer;
  return place * (int64_t)sizeof(float);
}

static void put_scale(int code, uint8_t *at, scale s)
{
  uint32_t bits;
  memcpy(&bits, &s.back, sizeof bits);
  if (fp8_scaling_of(code) == FP8_MX)
    *at = s.back != s.back ? 0xff : (uint8_t)(bits >> 23);
  else
    memcpy(at, &bits, sizeof bits);
}

static scale get_scale(int code, const uint8_t *at)
{
  scale s = { 0, 0 };
  if (fp8_scaling_of(code) == FP8_MX)
    s.back = of_exponent(*at);
  else
    memcpy(&s.back, at, sizeof s.back);
  return s;
}

/* ---- the interface -------------------------------------------------------------------------- */

fp8_matrix fp8_transposed(fp8_matrix m)
{
  return (fp8_matrix){ m.data, m.inner, m.outer, m.inner_stride, m.outer_stride };
}

fp8_buffer fp8_buffer_of(const exec_tensor *t)
{
  assert(exec_is_contiguous(t) && dtype_bytes((dtype)t->type) == 1);
  int64_t parts = t->rank == 2 ? t->shape[0] : 1;
  return (fp8_buffer){ t->data, parts, exec_elements(t) / parts };
}

void fp8_quantize(int code, const fp8_matrix *m, uint8_t *copy)
{
  int64_t scale_bytes = fp8_scale_bytes(fp8_scaling_of(code), m->outer, m->inner);
  uint8_t *scales = copy + m->outer * m->inner;
  number_format format = format_of(code);
  memset(scales, 0, (size_t)scale_bytes);
  for (tile t = { 0 }; next_tile(m, tile_size_of(code, false), &t);) {
    scale s = scale_of(code, magnitude_of(m, &t));
    for (int64_t i = t.outer; i < t.outer + t.outer_count; i++)
      for (int64_t j = t.inner; j < t.inner + t.inner_count; j++)
        copy[i * m->inner + j] = code_of(format, *element(m, i, j), s);
    if (scale_bytes > 0) put_scale(code, scales + scale_place(code, m, &t), s);
  }
}

void fp8_dequantize(int code, const uint8_t *copy, int64_t bytes, const fp8_matrix *to)
{
  const uint8_t *scales = copy + to->outer * to->inner;
  number_format format = format_of(code);
  if (bytes == to->outer * to->inner) code = FP8_UNIT;
  assert(bytes == fp8_copy_bytes(fp8_scaling_of(code), to->outer, to->inner));
  for (tile t = { 0 }; next_tile(to, tile_size_of(code, false), &t);) {
    scale s = { 1, 1 };
    if (scales != copy + bytes) s = get_scale(code, scales + scale_place(code, to, &t));
    for (int64_t i = t.outer; i < t.outer + t.outer_count; i++)
      for (int64_t j = t.inner; j < t.inner + t.inner_count; j++)
        *element(to, i, j) = number_of(format, copy[i * to->inner + j], s);
  }
}

void fp8_round_weight(int code, const fp8_matrix *weight)
{
  number_format format = format_of(code);
  for (tile t = { 0 }; next_tile(weight, tile_size_of(code, true), &t);) {
    scale s = scale_of(code, magnitude_of(weight, &t));
    for (int64_t i = t.outer; i < t.outer + t.outer_count; i++)
      for (int64_t j = t.inner; j < t.inner + t.inner_count; j++) {
        real *x = element(weight, i, j);
        *x = number_of(format, code_of(format, *x, s), s);
      }
  }
}
