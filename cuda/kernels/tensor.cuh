/*
 * The elements of a tensor by their number in row-major order, on the device: the twin of
 * ref/kernels/storage.h. A load is exact, a store rounds to nearest, ties to even.
 */
#ifndef OFFSIM_CUDA_KERNELS_TENSOR_CUH
#define OFFSIM_CUDA_KERNELS_TENSOR_CUH

extern "C" {
#include "sim/exec/call.h"
}
#include "cuda/kernels/for_each.cuh"
#include "ref/kernels/exact_math.h"
#include "sim/exec/number_formats.h"

typedef exec_tensor tensor;

static inline int64_t elements_of(const tensor &t)
{
  return exec_elements(&t);
}

/* The place of element `i`, in elements from `data`. */
DEVICE static inline int64_t place_of(const tensor &t, int64_t i)
{
  int64_t place = 0;
  int d = t.rank;
  while (d-- > 0 && i >= t.shape[d]) {
    place += i % t.shape[d] * t.strides[d];
    i /= t.shape[d];
  }
  return d < 0 ? place : place + i * t.strides[d];
}

DEVICE static inline float load_at(const void *data, int type, int64_t place)
{
  switch (type) {
  case DTYPE_BF16: return bf16_value(((const uint16_t *)data)[place]);
  case DTYPE_FP16: return (float)format_value(format_fp16(), ((const uint16_t *)data)[place]);
  case DTYPE_FP32: return ((const float *)data)[place];
  case DTYPE_FP64: return (float)((const double *)data)[place];
  default: return (float)format_value(format_e4m3(), ((const uint8_t *)data)[place]);
  }
}

DEVICE static inline void store_at(void *data, int type, int64_t place, float x)
{
  switch (type) {
  case DTYPE_BF16: ((uint16_t *)data)[place] = bf16_code(x); break;
  case DTYPE_FP16: ((uint16_t *)data)[place] = (uint16_t)format_code(format_fp16(), x); break;
  case DTYPE_FP32: ((float *)data)[place] = x; break;
  case DTYPE_FP64: ((double *)data)[place] = x; break;
  default: ((uint8_t *)data)[place] = (uint8_t)format_code(format_e4m3(), x); break;
  }
}

/* Element `i` of an fp8, bf16, fp16, fp32 or fp64 tensor. */
DEVICE static inline float load(const tensor &t, int64_t i)
{
  return load_at(t.data, t.type, place_of(t, i));
}

DEVICE static inline void store(const tensor &t, int64_t i, float x)
{
  store_at(t.data, t.type, place_of(t, i), x);
}

/* Element `i` of a u8, fp8 (the code), i32 or i64 tensor. */
DEVICE static inline int64_t load_int(const tensor &t, int64_t i)
{
  int64_t place = place_of(t, i);
  if (t.type == DTYPE_INT64) return ((const int64_t *)t.data)[place];
  if (t.type == DTYPE_INT32) return ((const int32_t *)t.data)[place];
  return ((const uint8_t *)t.data)[place];
}

DEVICE static inline void store_int(const tensor &t, int64_t i, int64_t x)
{
  int64_t place = place_of(t, i);
  if (t.type == DTYPE_INT64)
    ((int64_t *)t.data)[place] = x;
  else if (t.type == DTYPE_INT32)
    ((int32_t *)t.data)[place] = (int32_t)x;
  else
    ((uint8_t *)t.data)[place] = (uint8_t)x;
}

EXACT_FUNCTION bool holds_codes(const tensor &t)
{
  return t.type == DTYPE_BYTE || t.type == DTYPE_FP8 || t.type == DTYPE_INT32 ||
         t.type == DTYPE_INT64;
}

/* Element `i` of `from` becomes element `k` of `to`: unchanged bits between equal types,
 * otherwise through float; integers become floats, never the reverse. */
DEVICE static inline void copy_element(const tensor &from, int64_t i, const tensor &to, int64_t k)
{
  int64_t source = place_of(from, i), target = place_of(to, k);
  if (from.type != to.type && !holds_codes(to))
    store(to, k, holds_codes(from) ? (float)load_int(from, i) : load(from, i));
  else if (from.type != to.type)
    store_int(to, k, load_int(from, i));
  else if (from.type == DTYPE_FP64 || from.type == DTYPE_INT64)
    ((int64_t *)to.data)[target] = ((const int64_t *)from.data)[source];
  else if (from.type == DTYPE_FP32 || from.type == DTYPE_INT32)
    ((int32_t *)to.data)[target] = ((const int32_t *)from.data)[source];
  else if (from.type == DTYPE_BF16 || from.type == DTYPE_FP16)
    ((uint16_t *)to.data)[target] = ((const uint16_t *)from.data)[source];
  else
    ((uint8_t *)to.data)[target] = ((const uint8_t *)from.data)[source];
}

DEVICE static inline void clear_element(const tensor &t, int64_t i)
{
  if (holds_codes(t))
    store_int(t, i, 0);
  else
    store(t, i, 0);
}

/* ---- words of 8 bytes: unchanged elements move faster in them -------------------------------- */

static inline int64_t elements_of_word(const tensor &t)
{
  return (int64_t)sizeof(int64_t) / dtype_bytes((dtype)t.type);
}

/* Its elements are whole words, one after the other. */
static inline bool is_words(const tensor &t)
{
  int64_t word = elements_of_word(t);
  int last = t.rank - 1;
  if (t.rank == 0 || t.strides[last] != 1 || t.shape[last] % word != 0) return false;
  for (int d = 0; d < last; d++)
    if (t.shape[d] > 1 && t.strides[d] % word != 0) return false;
  return (uintptr_t)t.data % sizeof(int64_t) == 0;
}

/* The same memory as words, for copy_element and clear_element. */
static inline tensor as_words(tensor t)
{
  int64_t word = elements_of_word(t);
  int last = t.rank - 1;
  for (int d = 0; d < last; d++)
    t.strides[d] /= word;
  t.shape[last] /= word;
  t.type = DTYPE_INT64;
  return t;
}

#endif
