/*
 * A matrix that is quantised to fp8: copies, each for products along one of its dimensions. A copy
 * is
 *
 *   data     one byte an element, [outer][inner]; e4m3, or e5m2 with FP8_E5M2
 *   scales   factors of the data, one for each tile of the matrix; padding is 0
 *
 *   scaling      tile            scale
 *   FP8_UNIT     the matrix      none: 1
 *   FP8_TENSOR   the matrix      fp32: largest magnitude / largest fp8 number
 *   FP8_BLOCKS   1 x 128         fp32, a power of two, [inner / 128][outer, in fours]
 *   FP8_MX       1 x 32          a byte, exponent of two + 127,
 *                                [outer, in 128s][inner / 32, in fours]
 *
 * The outer dimension of a rowwise copy is the matrix's rows, that of a columnwise copy its
 * columns: it is the transposed matrix. A buffer of several parts has a copy of each slice of the
 * matrix's rows, one after the other, as tensor-parallel ranks gather them; its view is
 * [parts][bytes of one]. Weights are quantised by the product that reads them, in tiles of 128 x
 * 128 for FP8_BLOCKS.
 *
 * Transformer Engine (d0067d0d): common/recipe/recipe_common.cuh, fp8_block_scaling, mxfp8 and
 * current_scaling; pytorch/tensor/float8_blockwise_tensor.py, get_scale_shape.
 */
#ifndef OFFSIM_SIM_PLAN_FP8_COPY_H
#define OFFSIM_SIM_PLAN_FP8_COPY_H

#include <stdint.h>

#include "sim/base/units.h"

/* The scalar `fp8` of a kernel: one of these, plus FP8_E5M2 if its data (of a product: its first
 * operand's) are e5m2. */
typedef enum fp8_scaling { FP8_NONE, FP8_UNIT, FP8_TENSOR, FP8_BLOCKS, FP8_MX } fp8_scaling;
enum { FP8_SCALINGS = 8, FP8_E5M2 = FP8_SCALINGS };

/* The scalar `copies` of a quantisation: the copies in its first write, plus FP8_COPIES_SECOND
 * times those in its second write. */
typedef enum fp8_copies { FP8_NO_COPY, FP8_ROWWISE, FP8_COLUMNWISE, FP8_BOTH } fp8_copies;
enum { FP8_COPIES_SECOND = 4 };

enum {
  FP8_BLOCK = 128,
  FP8_BLOCK_ROWS = 4, /* scales of blocks come in rows of 16 bytes */
  FP8_MX_BLOCK = 32,
  FP8_MX_TILE_OUTER = 128,
  FP8_MX_TILE_INNER = 4
};

static inline int64_t fp8_scale_bytes(fp8_scaling s, int64_t outer, int64_t inner)
{
  if (s == FP8_MX)
    return round_up(outer, FP8_MX_TILE_OUTER) *
           round_up(ceil_div(inner, FP8_MX_BLOCK), FP8_MX_TILE_INNER);
  if (s == FP8_BLOCKS)
    return round_up(outer, FP8_BLOCK_ROWS) * ceil_div(inner, FP8_BLOCK) * (int64_t)sizeof(float);
  return s == FP8_TENSOR ? (int64_t)sizeof(float) : 0;
}

static inline int64_t fp8_copy_bytes(fp8_scaling s, int64_t outer, int64_t inner)
{
  return outer * inner + fp8_scale_bytes(s, outer, inner);
}

#endif
