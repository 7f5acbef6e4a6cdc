/*
 * The small floating-point formats, rounded in software: bf16, fp16 and both of fp8 (OCP 8-bit
 * floating point specification; NVIDIA's cvt.rn.satfinite for fp8: values that are too large become
 * the largest number). Rounding is to nearest, ties to even. C11 and CUDA C++.
 */
#ifndef OFFSIM_SIM_EXEC_NUMBER_FORMATS_H
#define OFFSIM_SIM_EXEC_NUMBER_FORMATS_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "sim/plan/plan.h"

#ifdef __CUDACC__
#define EXACT_FUNCTION static __host__ __device__ inline
#else
#define EXACT_FUNCTION static inline
#endif

EXACT_FUNCTION uint64_t exact_bits(double x)
{
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

EXACT_FUNCTION double exact_of_bits(uint64_t bits)
{
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

EXACT_FUNCTION double exact_nan(void)
{
  return exact_of_bits(UINT64_C(0x7ff8000000000000));
}

EXACT_FUNCTION double exact_infinity(void)
{
  return exact_of_bits(UINT64_C(0x7ff0000000000000));
}

/* 2^n for -1022 <= n <= 1023. */
EXACT_FUNCTION double exact_power_of_two(int n)
{
  return exact_of_bits((uint64_t)(n + 1023) << 52);
}

/* A sign bit, `exponent_bits` with bias 2^(exponent_bits-1) - 1, `mantissa_bits`. */
typedef struct number_format {
  int exponent_bits, mantissa_bits;
  uint32_t largest;  /* code of the largest number */
  uint32_t overflow; /* code of values that round to more than that, and of infinities */
  uint32_t infinity; /* 0: there is none */
  uint32_t nan;
} number_format;

EXACT_FUNCTION number_format format_bf16(void)
{
  number_format f = { 8, 7, 0x7f7f, 0x7f80, 0x7f80, 0x7fc0 };
  return f;
}

EXACT_FUNCTION number_format format_fp16(void)
{
  number_format f = { 5, 10, 0x7bff, 0x7c00, 0x7c00, 0x7e00 };
  return f;
}

/* No infinities; largest 448. */
EXACT_FUNCTION number_format format_e4m3(void)
{
  number_format f = { 4, 3, 0x7e, 0x7e, 0, 0x7f };
  return f;
}

/* Largest 57344. */
EXACT_FUNCTION number_format format_e5m2(void)
{
  number_format f = { 5, 2, 0x7b, 0x7b, 0x7c, 0x7f };
  return f;
}

/* The code of the number nearest to `x`. */
EXACT_FUNCTION uint32_t format_code(number_format f, double x)
{
  const uint64_t hidden = UINT64_C(1) << 52;
  int lowest = 2 - (1 << (f.exponent_bits - 1)); /* exponent of the smallest normal number */
  uint64_t bits = exact_bits(x);
  uint32_t sign = (uint32_t)(bits >> 63) << (f.exponent_bits + f.mantissa_bits);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  if (x != x) return f.nan;
  if (exponent < lowest - f.mantissa_bits - 1) return sign;
  uint64_t significand = (bits & (hidden - 1)) | hidden;
  int dropped = 52 - f.mantissa_bits + (exponent < lowest ? lowest - exponent : 0);
  uint64_t kept = significand >> dropped;
  uint64_t rest = significand & ((UINT64_C(1) << dropped) - 1), half = UINT64_C(1) << (dropped - 1);
  kept += rest > half || (rest == half && (kept & 1));
  if (exponent > lowest) kept += (uint64_t)(exponent - lowest) << f.mantissa_bits;
  return sign | (kept > f.largest ? f.overflow : (uint32_t)kept);
}

EXACT_FUNCTION double format_value(number_format f, uint32_t code)
{
  uint32_t magnitude = code & ((1U << (f.exponent_bits + f.mantissa_bits)) - 1);
  int exponent = (int)(magnitude >> f.mantissa_bits);
  uint32_t mantissa = magnitude & ((1U << f.mantissa_bits) - 1);
  int lowest = 2 - (1 << (f.exponent_bits - 1));
  double sign = code == magnitude ? 1 : -1;
  if (magnitude > f.largest) return magnitude == f.infinity ? sign * exact_infinity() : exact_nan();
  if (exponent == 0) return sign * mantissa * exact_power_of_two(lowest - f.mantissa_bits);
  mantissa |= 1U << f.mantissa_bits;
  return sign * mantissa * exact_power_of_two(lowest - f.mantissa_bits + exponent - 1);
}

/* bf16 is the upper half of a float. */
EXACT_FUNCTION float bf16_value(uint16_t code)
{
  uint32_t bits = (uint32_t)code << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

EXACT_FUNCTION uint16_t bf16_code(float x)
{
  uint32_t bits;
  if (x != x) return 0x7fc0;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- elements of memory, by their type ------------------------------------------------------- */

static inline double number_load(const void *data, dtype type, int64_t place)
{
  switch (type) {
  case DTYPE_BF16: return (double)bf16_value(((const uint16_t *)data)[place]);
  case DTYPE_FP16: return format_value(format_fp16(), ((const uint16_t *)data)[place]);
  case DTYPE_FP32: return (double)((const float *)data)[place];
  case DTYPE_FP64: return ((const double *)data)[place];
  case DTYPE_FP8: return format_value(format_e4m3(), ((const uint8_t *)data)[place]);
  case DTYPE_BYTE:
  case DTYPE_INT32:
  case DTYPE_INT64:
  case DTYPES: break;
  }
  assert(0 && "a tensor of numbers");
  return 0;
}

static inline void number_store(void *data, dtype type, int64_t place, double x)
{
  switch (type) {
  case DTYPE_BF16: ((uint16_t *)data)[place] = (uint16_t)format_code(format_bf16(), x); return;
  case DTYPE_FP16: ((uint16_t *)data)[place] = (uint16_t)format_code(format_fp16(), x); return;
  case DTYPE_FP32: ((float *)data)[place] = (float)x; return;
  case DTYPE_FP64: ((double *)data)[place] = x; return;
  case DTYPE_FP8: ((uint8_t *)data)[place] = (uint8_t)format_code(format_e4m3(), x); return;
  case DTYPE_BYTE:
  case DTYPE_INT32:
  case DTYPE_INT64:
  case DTYPES: break;
  }
  assert(0 && "a tensor of numbers");
}

#endif
