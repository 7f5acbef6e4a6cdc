#include "sim/graph/fp8.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/plan/fp8_copy.h"

static bool is_recipe(const settings *s, fp8_recipe_choice recipe)
{
  return s->training.fp8_recipe == recipe;
}

bool fp8_is_per_tensor(const settings *s)
{
  return !is_recipe(s, FP8_RECIPE_BLOCKWISE) && !is_recipe(s, FP8_RECIPE_MXFP8);
}

enum { BLACKWELL = 100 }; /* compute capability 10.0 and above: fp8 GEMMs take any layout */

static bool any_layout(const settings *s)
{
  return s->derived.compute_capability >= BLACKWELL;
}

static fp8_scaling scaling_of(const settings *s)
{
  return is_recipe(s, FP8_RECIPE_MXFP8)        ? FP8_MX
         : is_recipe(s, FP8_RECIPE_BLOCKWISE)  ? FP8_BLOCKS
         : is_recipe(s, FP8_RECIPE_TENSORWISE) ? FP8_TENSOR
                                               : FP8_UNIT;
}

int fp8_code(const settings *s, bool gradient)
{
  bool hybrid = s->training.fp8_format == FP8_FORMAT_HYBRID;
  return (int)scaling_of(s) | (gradient && hybrid ? FP8_E5M2 : 0);
}

int64_t fp8_rowwise_bytes(const settings *s, int64_t rows, int64_t cols)
{
  assert(rows > 0 && cols > 0);
  return fp8_copy_bytes(scaling_of(s), rows, cols);
}

int64_t fp8_columnwise_bytes(const settings *s, int64_t rows, int64_t cols)
{
  assert(rows > 0 && cols > 0);
  return fp8_copy_bytes(scaling_of(s), cols, rows);
}

static bool one_copy(const settings *s, bool gathered)
{
  return fp8_is_per_tensor(s) && (gathered || any_layout(s));
}

int64_t fp8_saved_bytes(const settings *s, int64_t rows, int64_t cols, bool gathered)
{
  return one_copy(s, gathered) ? fp8_rowwise_bytes(s, rows, cols)
                               : fp8_columnwise_bytes(s, rows, cols);
}

int64_t fp8_forward_bytes(const settings *s, int64_t rows, int64_t cols)
{
  return one_copy(s, false) ? 0 : fp8_rowwise_bytes(s, rows, cols);
}

fp8_copies fp8_saved_copies(const settings *s, bool gathered)
{
  return one_copy(s, gathered) ? FP8_ROWWISE : FP8_COLUMNWISE;
}

bool fp8_transposes_gathered(const settings *s)
{
  return fp8_is_per_tensor(s) && !any_layout(s);
}

gemm_layout fp8_wgrad_layout(const settings *s)
{
  return one_copy(s, false) ? GEMM_TN : GEMM_TN_COPIES;
}

/* Per-tensor scales of weights are part of the module's state. */
int64_t fp8_weight_scale_bytes(const settings *s, int64_t outer, int64_t inner)
{
  if (is_recipe(s, FP8_RECIPE_BLOCKWISE))
    return ceil_div(outer, FP8_BLOCK) * round_up(ceil_div(inner, FP8_BLOCK), FP8_BLOCK_ROWS) *
           (int64_t)sizeof(float);
  return is_recipe(s, FP8_RECIPE_MXFP8) ? fp8_scale_bytes(FP8_MX, outer, inner) : 0;
}

bool fp8_can_keep_original(const settings *s)
{
  return !is_recipe(s, FP8_RECIPE_DELAYED);
}

bool fp8_norm_is_fused(const settings *s)
{
  return is_recipe(s, FP8_RECIPE_DELAYED);
}

int64_t fp8_gradient_bytes(const settings *s, int64_t rows, int64_t cols)
{
  return fp8_saved_bytes(s, rows, cols, false) + fp8_forward_bytes(s, rows, cols);
}

fp8_copies fp8_gradient_copies(const settings *s)
{
  return one_copy(s, false) ? FP8_ROWWISE : FP8_BOTH;
}
