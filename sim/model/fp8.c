#include "sim/model/fp8.h"

#include <string.h>

enum { BLOCK = 128, MX_BLOCK = 32, MX_TILE_OUTER = 128, MX_TILE_INNER = 4, SCALE = 4 };

static bool is_recipe(const settings *s, const char *name)
{
  return strcmp(s->training.fp8_recipe, name) == 0;
}

static bool per_tensor(const settings *s)
{
  return !is_recipe(s, "blockwise") && !is_recipe(s, "mxfp8");
}

/* Compute capability 10.0 and above: fp8 GEMMs take any layout. */
static bool any_layout(const settings *s)
{
  return strstr(s->machine.name, "B200") != NULL;
}

static int64_t blocks(int64_t n, int64_t size)
{
  return (n + size - 1) / size;
}

static int64_t padded(int64_t n, int64_t size)
{
  return blocks(n, size) * size;
}

/* Scales of a copy whose product runs along `inner`. Blockwise scales are padded to four rows of 16
 * bytes' worth (float8_blockwise_tensor.py, get_scale_shape). */
static int64_t scale_bytes(const settings *s, int64_t outer, int64_t inner)
{
  if (is_recipe(s, "mxfp8"))
    return padded(outer, MX_TILE_OUTER) * padded(blocks(inner, MX_BLOCK), MX_TILE_INNER);
  if (is_recipe(s, "blockwise")) return padded(outer, 4) * blocks(inner, BLOCK) * SCALE;
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
  return per_tensor(s) && (gathered || any_layout(s));
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
  bool transposes = gathered && per_tensor(s) && !any_layout(s);
  return (original ? fp8_saved_bytes(s, rows, cols, gathered) : 0) +
         (transposes ? gemm_rows * cols : 0);
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

int64_t fp8_weight_bytes(const settings *s, int64_t rows, int64_t cols)
{
  return fp8_gradient_bytes(s, rows, cols);
}

int64_t fp8_row_alignment(const settings *s)
{
  return is_recipe(s, "mxfp8") ? 32 : 16;
}
