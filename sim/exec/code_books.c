#include "sim/exec/code_books.h"

#include <assert.h>
#include <stdlib.h>

#include "sim/base/diag.h"
#include "sim/base/units.h"

const float codes_4bit[CODES_4BIT] = {
  -1.0f,
  -0.6961928009986877f,
  -0.5250730514526367f,
  -0.39491748809814453f,
  -0.28444138169288635f,
  -0.18477343022823334f,
  -0.09105003625154495f,
  0.0f,
  0.07958029955625534f,
  0.16093020141124725f,
  0.24611230194568634f,
  0.33791524171829224f,
  0.44070982933044434f,
  0.5626170039176941f,
  0.7229568362236023f,
  1.0f,
};

enum { EXPONENTS = 7 };

/* Point `i` of `count` + 1 from 0.1 to 1, as torch.linspace computes it: from the nearer end, in
 * floats, without rounding the product separately. */
static float boundary(int i, int count)
{
  assert(i >= 0 && i <= count);
  const float first = 0.1f, last = 1.0f, step = (last - first) / (float)count;
  if (i < (count + 1) / 2) return (float)((double)first + (double)step * i);
  return (float)((double)last - (double)step * (count - i));
}

static int by_value(const void *left, const void *right)
{
  float a = *(const float *)left, b = *(const float *)right;
  return a < b ? -1 : a > b;
}

/* With exponent e, 2^e means of neighbouring points, times 10^(e - 6), of either sign; 0 and 1. */
void codes_8bit(float codes[CODES_8BIT])
{
  static const float powers[EXPONENTS] = { 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f };
  int made = 0;
  for (int e = 0; e < EXPONENTS; e++) {
    int count = 1 << e;
    for (int i = 0; i < count; i++) {
      float mean = (boundary(i, count) + boundary(i + 1, count)) / 2.0f;
      codes[made++] = powers[e] * mean;
      codes[made++] = -(powers[e] * mean);
    }
  }
  assert(made == CODES_8BIT - 2);
  codes[made++] = 0.0f;
  assert(made == CODES_8BIT - 1);
  codes[made] = 1.0f;
  qsort(codes, CODES_8BIT, sizeof *codes, by_value);
  for (int i = 1; i < CODES_8BIT; i++)
    assert(codes[i - 1] < codes[i] && "a value has one code");
}

/* ---- quantising ---- */

static float distance(float a, float b)
{
  return a < b ? b - a : a - b;
}

static uint8_t nearest(const float *codes, int count, float x)
{
  assert(count > 0 && count <= CODES_8BIT);
  int best = 0;
  for (int i = 1; i < count; i++)
    if (distance(codes[i], x) < distance(codes[best], x)) best = i;
  return (uint8_t)best;
}

static float largest_magnitude(const float *x, int64_t count)
{
  float largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = distance(x[i], 0) > largest ? distance(x[i], 0) : largest;
  return largest;
}

/* The code of x over its scale; in a block of zeros the code of 0. */
static uint8_t code_of(const float *codes, int count, float x, float scale)
{
  assert(!(scale < 0));
  return nearest(codes, count, scale > 0 ? x / scale : 0);
}

static void quantize_scales(float *scales, int64_t count, const quantized_weight *to)
{
  assert(count > 0 && to->nested_block > 0);
  float codes[CODES_8BIT], sum = 0;
  codes_8bit(codes);
  for (int64_t i = 0; i < count; i++)
    sum += scales[i];
  *to->mean = sum / (float)count;
  for (int64_t i = 0; i < count; i++)
    scales[i] -= *to->mean;
  for (int64_t i = 0; i < count; i++) {
    float *nested = &to->nested_scales[i / to->nested_block];
    if (i % to->nested_block == 0)
      *nested = largest_magnitude(scales + i, min_i64(to->nested_block, count - i));
    to->scales[i] = code_of(codes, CODES_8BIT, scales[i], *nested);
  }
}

void quantize_weight(const float *x, int64_t count, const quantized_weight *to)
{
  assert(count >= 0 && to->block > 0 && to->nested_block > 0);
  int64_t blocks = ceil_div(count, to->block);
  float *scales = malloc((size_t)max_i64(blocks, 1) * sizeof *scales);
  assert(to->block > 0 && to->nested_block > 0);
  if (scales == NULL)
    die_refused("memory: requested %lld bytes, the system has none left",
                (long long)blocks * (long long)sizeof *scales);
  for (int64_t i = 0; i < count; i++) {
    float *scale = &scales[i / to->block];
    if (i % to->block == 0) *scale = largest_magnitude(x + i, min_i64(to->block, count - i));
    int code = code_of(codes_4bit, CODES_4BIT, x[i], *scale);
    to->codes[i / 2] = (uint8_t)(i % 2 == 0 ? code << 4 : to->codes[i / 2] | code);
  }
  quantize_scales(scales, blocks, to);
  free(scales);
}
