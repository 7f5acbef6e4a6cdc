#include "sim/model/fp8.h"

#include <string.h>

#include "sim/base/units.h"

enum { BLOCK = 128, MX_BLOCK = 32, MX_TILE_OUTER = 128, MX_TILE_INNER = 4, SCALE = 4 };

static bool is_recipe(const settings *s, const char *name)
{
  return strcmp(s->training.fp8_recipe, name) == 0;
}

bool fp8_is_per_tensor(const settings *s)
{
  return !is_recipe(s, "blockwise") && !is_recipe(s, "mxfp8");
}

enum { BLACKWELL = 100 }; /* compute capability 10.0 and above: fp8 GEMMs take any layout */

static bool any_layout(const settings *s)
{
  return s->derived.compute_capability >= BLACKWELL;
}

/* Scales of a copy whose product runs along `inner`. Blockwise scales are padded to four rows of 16
 * bytes' worth (float8_blockwise_tensor.py, get_scale_shape). */
static int64_t scale_bytes(const settings *s, int64_t outer, int64_t inner)
{
  if (is_recipe(s, "mxfp8"))
    return round_up(outer, MX_TILE_OUTER) * round_up(ceil_div(inner, MX_BLOCK), MX_TILE_INNER);
  if (is_recipe(s, "blockwise")) return round_up(outer, 4) * ceil_div(inner, BLOCK) * SCALE;
  return is_recipe(s, "tensorwise") ? SCALE : 0;
}

int64_t fp8_rowwise_bytes(const settings *s, int64_t rows, int64_t cols)
{
  return rows * cols + scale_bytes(s, rows, cols);
}

int64_t fp8_columnwise_bytes(const settings *s, int64_t rows, int64_t cols)
{
  return rows * cols + scale_bytes(s, cols, rows);
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

int64_t fp8_forward_bytes(const settings *s, int64_t rows, int64_t cols, bool gathered)
{
  return one_copy(s, gathered) ? 0 : fp8_rowwise_bytes(s, rows, cols);
}

int64_t fp8_wgrad_bytes(const settings *s, int64_t rows, int64_t gemm_rows, int64_t cols,
                        bool gathered, bool original)
{
  bool transposes = gathered && fp8_is_per_tensor(s) && !any_layout(s);
  return (original ? fp8_saved_bytes(s, rows, cols, gathered) : 0) +
         (transposes ? gemm_rows * cols : 0);
}

/* Per-tensor scales of weights are part of the module's state. */
int64_t fp8_weight_scale_bytes(const settings *s, int64_t outer, int64_t inner)
{
  if (is_recipe(s, "blockwise"))
    return ceil_div(outer, BLOCK) * round_up(ceil_div(inner, BLOCK), 4) * SCALE;
  return is_recipe(s, "mxfp8") ? scale_bytes(s, outer, inner) : 0;
}

bool fp8_can_keep_original(const settings *s)
{
  return !is_recipe(s, "delayed");
}

bool fp8_norm_is_fused(const settings *s)
{
  return is_recipe(s, "delayed");
}

int64_t fp8_gradient_bytes(const settings *s, int64_t rows, int64_t cols)
{
  return fp8_saved_bytes(s, rows, cols, false) + fp8_forward_bytes(s, rows, cols, false);
}
