/*
 * Matrices in fp8 on the device: the twin of ref/kernels/fp8.h. First the largest magnitude of each
 * tile is found, in scratch, as bits: bits of positive floats have the order of the floats, and a
 * NaN is above all.
 */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_FP8_CUH
#define OFFSIM_CUDA_KERNELS_EXACT_FP8_CUH

#include "cuda/kernels/block.cuh"
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

extern "C" {
#include "sim/plan/fp8_copy.h"
}

enum { FP8_RUN = 32 }; /* elements of a tile that one thread reads; divides every tile's width */

/* Element (i, j) is element i * outer_stride + j * inner_stride of `t`. */
typedef struct fp8_view {
  tensor t;
  int64_t outer, inner;
  int64_t outer_stride, inner_stride;
} fp8_view;

static inline fp8_view fp8_turned(fp8_view m)
{
  fp8_view turned = { m.t, m.inner, m.outer, m.inner_stride, m.outer_stride };
  return turned;
}

DEVICE static inline int64_t fp8_place(const fp8_view &m, int64_t i, int64_t j)
{
  return i * m.outer_stride + j * m.inner_stride;
}

/* ---- tiles ---------------------------------------------------------------------------------- */

static inline fp8_scaling fp8_scaling_of(int code)
{
  return (fp8_scaling)(code % FP8_SCALINGS);
}

/* The tiles of a matrix: `across` in a row of them. */
typedef struct fp8_tiles {
  int64_t outer, inner; /* elements of one */
  int64_t across, count;
} fp8_tiles;

static inline fp8_tiles fp8_tiles_of(int code, bool weight, int64_t outer, int64_t inner)
{
  fp8_tiles t = { outer, inner, 1, 1 };
  if (outer == 0 || inner == 0) {
    fp8_tiles none = { 1, 1, 0, 0 };
    return none;
  }
  if (fp8_scaling_of(code) == FP8_BLOCKS) {
    t.outer = weight ? FP8_BLOCK : 1;
    t.inner = FP8_BLOCK;
  } else if (fp8_scaling_of(code) == FP8_MX) {
    t.outer = 1;
    t.inner = FP8_MX_BLOCK;
  }
  t.across = ceil_div(inner, t.inner);
  t.count = ceil_div(outer, t.outer) * t.across;
  return t;
}

DEVICE static inline int64_t fp8_tile_at(const fp8_tiles &t, int64_t i, int64_t j)
{
  return i / t.outer * t.across + j / t.inner;
}

/* Bits of the largest magnitude of each tile. */
static inline void fp8_find_magnitudes(cuda_call *c, fp8_view m, fp8_tiles tiles, uint32_t *largest)
{
  int64_t runs = ceil_div(m.inner, FP8_RUN);
  for_each(
      c, tiles.count, KERNEL_LAMBDA(int64_t i) { largest[i] = 0; });
  for_each(
      c, m.outer * runs, KERNEL_LAMBDA(int64_t n) {
        int64_t i = n / runs, first = n % runs * FP8_RUN;
        uint32_t most = 0;
        for (int64_t j = first; j < least(first + FP8_RUN, m.inner); j++) {
          float x = load(m.t, fp8_place(m, i, j));
          uint32_t bits;
          memcpy(&bits, &x, sizeof bits);
          bits &= 0x7fffffff;
          most = bits > most ? bits : most;
        }
        raise_to(&largest[fp8_tile_at(tiles, i, first)], most);
      });
}

/* ---- scales --------------------------------------------------------------------------------- */

/* A tile's factor, and its code. */
typedef struct fp8_scale {
  float times, back;
} fp8_scale;

DEVICE static inline number_format fp8_format(int code)
{
  return code & FP8_E5M2 ? format_e5m2() : format_e4m3();
}

/* recipe_common.cuh, compute_scale_from_amax: a tile without a finite number other than 0 has scale
 * 1. */
DEVICE static inline float fp8_largest_over(float largest, float magnitude)
{
  const float infinity = (float)exact_infinity();
  if (magnitude == 0 || magnitude != magnitude || magnitude == infinity) return 1;
  float times = largest / magnitude;
  return times == infinity ? bf16_value((uint16_t)format_bf16().largest) : times;
}

/* The power of two at or below x. */
DEVICE static inline float fp8_power_of_two_in(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits &= 0xff800000;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* ptx_arch_spec.cuh, float_to_e8m0: the exponent of the power of two at or above x, + 127. */
DEVICE static inline uint8_t fp8_exponent_above(float x)
{
  uint32_t bits;
  if (x != x) return 0xff;
  if (x == (float)exact_infinity()) return 0xfe;
  memcpy(&bits, &x, sizeof bits);
  uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffff;
  bool up = mantissa > 0 && exponent != 0xfe && !(exponent == 0 && mantissa <= 0x400000);
  return (uint8_t)(exponent + up);
}

DEVICE static inline float fp8_of_exponent(uint8_t exponent)
{
  return exponent == 0xff ? (float)exact_nan() : (float)exact_power_of_two(exponent - 127);
}

DEVICE static inline fp8_scale fp8_scale_of(int code, uint32_t magnitude_bits)
{
  float magnitude, largest = (float)format_value(fp8_format(code), fp8_format(code).largest);
  fp8_scale s = { 1, 1 };
  memcpy(&magnitude, &magnitude_bits, sizeof magnitude);
  int scaling = code % FP8_SCALINGS;
  if (scaling == FP8_MX) {
    s.back = fp8_of_exponent(fp8_exponent_above(magnitude * (1 / largest)));
    s.times = 1 / s.back;
  } else if (scaling == FP8_BLOCKS || scaling == FP8_TENSOR) {
    s.times = fp8_largest_over(largest, magnitude);
    if (scaling == FP8_BLOCKS) s.times = fp8_power_of_two_in(s.times);
    s.back = 1 / s.times;
  }
  return s;
}

DEVICE static inline uint8_t fp8_code_of(int code, float x, fp8_scale s)
{
  float scaled = x * s.times;
  return (uint8_t)format_code(fp8_format(code), (double)scaled);
}

DEVICE static inline float fp8_number_of(int code, uint8_t number, fp8_scale s)
{
  return (float)format_value(fp8_format(code), number) * s.back;
}

/* ---- scales of a copy ----------------------------------------------------------------------- */

/* Offset in bytes of the scale of tile `n`, and from a row of tiles to the next. */
typedef struct fp8_scale_places {
  int64_t across, by_outer, by_inner;
} fp8_scale_places;

static inline fp8_scale_places fp8_scale_places_of(int code, int64_t outer, int64_t inner)
{
  fp8_scale_places p = { fp8_tiles_of(code, false, outer, inner).across, 0, 0 };
  if (fp8_scaling_of(code) == FP8_MX) {
    p.by_outer = round_up(ceil_div(inner, FP8_MX_BLOCK), FP8_MX_TILE_INNER);
    p.by_inner = 1;
  } else if (fp8_scaling_of(code) == FP8_BLOCKS) {
    p.by_outer = sizeof(float);
    p.by_inner = round_up(outer, FP8_BLOCK_ROWS) * (int64_t)sizeof(float);
  }
  return p;
}

DEVICE static inline int64_t fp8_scale_place(const fp8_scale_places &p, int64_t n)
{
  return n / p.across * p.by_outer + n % p.across * p.by_inner;
}

DEVICE static inline void fp8_put_scale(int code, uint8_t *at, fp8_scale s)
{
  uint32_t bits;
  memcpy(&bits, &s.back, sizeof bits);
  if (code % FP8_SCALINGS == FP8_MX)
    *at = s.back != s.back ? 0xff : (uint8_t)(bits >> 23);
  else
    memcpy(at, &bits, sizeof bits);
}

DEVICE static inline fp8_scale fp8_get_scale(int code, const uint8_t *at)
{
  fp8_scale s = { 0, 0 };
  if (code % FP8_SCALINGS == FP8_MX)
    s.back = fp8_of_exponent(*at);
  else
    memcpy(&s.back, at, sizeof s.back);
  return s;
}

/* ---- matrices ------------------------------------------------------------------------------- */

/* An operand with copies: its view is [bytes], or [parts][bytes of one]. */
typedef struct fp8_buffer {
  uint8_t *data;
  int64_t parts, part_bytes;
} fp8_buffer;

static inline fp8_buffer fp8_buffer_of(tensor t)
{
  int64_t parts = t.rank == 2 ? t.shape[0] : 1;
  fp8_buffer b = { (uint8_t *)t.data, parts, elements_of(t) / parts };
  return b;
}

/* `largest`: a number for each tile. */
static inline void fp8_quantize(cuda_call *c, int code, fp8_view m, uint8_t *copy,
                                uint32_t *largest)
{
  int64_t scale_bytes = fp8_scale_bytes(fp8_scaling_of(code), m.outer, m.inner);
  uint8_t *scales = copy + m.outer * m.inner;
  fp8_tiles tiles = fp8_tiles_of(code, false, m.outer, m.inner);
  fp8_scale_places places = fp8_scale_places_of(code, m.outer, m.inner);
  fp8_find_magnitudes(c, m, tiles, largest);
  for_each(
      c, m.outer * m.inner, KERNEL_LAMBDA(int64_t n) {
        int64_t i = n / m.inner, j = n % m.inner;
        fp8_scale s = fp8_scale_of(code, largest[fp8_tile_at(tiles, i, j)]);
        copy[n] = fp8_code_of(code, load(m.t, fp8_place(m, i, j)), s);
      });
  if (scale_bytes == 0) return;
  for_each(
      c, scale_bytes, KERNEL_LAMBDA(int64_t i) { scales[i] = 0; });
  for_each(
      c, tiles.count, KERNEL_LAMBDA(int64_t n) {
        fp8_put_scale(code, scales + fp8_scale_place(places, n), fp8_scale_of(code, largest[n]));
      });
}

/* A copy of `bytes` as floats. */
static inline void fp8_dequantize(cuda_call *c, int code, const uint8_t *copy, int64_t bytes,
                                  fp8_view to)
{
  const uint8_t *scales = copy + to.outer * to.inner;
  bool scaled = bytes != to.outer * to.inner;
  fp8_tiles tiles = fp8_tiles_of(code, false, to.outer, to.inner);
  fp8_scale_places places = fp8_scale_places_of(code, to.outer, to.inner);
  assert(!scaled || bytes == fp8_copy_bytes(fp8_scaling_of(code), to.outer, to.inner));
  for_each(
      c, to.outer * to.inner, KERNEL_LAMBDA(int64_t n) {
        int64_t i = n / to.inner, j = n % to.inner;
        const uint8_t *at = scales + fp8_scale_place(places, fp8_tile_at(tiles, i, j));
        fp8_scale none = { 1, 1 }, s = scaled ? fp8_get_scale(code, at) : none;
        store(to.t, fp8_place(to, i, j), fp8_number_of(code, copy[n], s));
      });
}

/* Quantises a weight and back, as the product along `inner` reads it. */
static inline void fp8_round_weight(cuda_call *c, int code, fp8_view weight, uint32_t *largest)
{
  fp8_tiles tiles = fp8_tiles_of(code, true, weight.outer, weight.inner);
  fp8_find_magnitudes(c, weight, tiles, largest);
  for_each(
      c, weight.outer * weight.inner, KERNEL_LAMBDA(int64_t n) {
        int64_t i = n / weight.inner, j = n % weight.inner, place = fp8_place(weight, i, j);
        fp8_scale s = fp8_scale_of(code, largest[fp8_tile_at(tiles, i, j)]);
        uint8_t number = fp8_code_of(code, load(weight.t, place), s);
        store(weight.t, place, fp8_number_of(code, number, s));
      });
}

#endif
