#include "cuda/kernels/fast/fp8_factors.h"

#include "ref/kernels/fp8.h"

enum { PLACE = 256 };

static fast_scaling scaling_of(fp8_scaling s, bool weight)
{
  if (s == FP8_TENSOR) return FAST_SCALE_MATRIX;
  if (s != FP8_BLOCKS) return FAST_SCALE_NONE;
  return weight ? FAST_SCALE_128X128 : FAST_SCALE_1X128;
}

/* One copy, [outer][inner] and its scales; data alone may be several, which follow each other along
 * `outer`. */
static bool copy_of(const exec_tensor *t, fp8_scaling scaling, int64_t outer, int64_t inner,
                    bool parts_are_inner, fast_matrix *m)
{
  if (dtype_bytes((dtype)t->type) != 1 || !exec_is_contiguous(t)) return false;
  int64_t bytes = exec_elements(t), parts = t->rank == 2 ? t->shape[0] : 1;
  bool bare = bytes == outer * inner;
  if (!bare && (parts > 1 || bytes != fp8_copy_bytes(scaling, outer, inner))) return false;
  if (parts > 1 && parts_are_inner) return false;
  *m = (fast_matrix){ .data = t->data,
                      .type = DTYPE_FP8,
                      .row_stride = inner,
                      .column_stride = 1,
                      .scaling = bare ? FAST_SCALE_NONE : scaling_of(scaling, false),
                      .scales = (char *)t->data + outer * inner };
  return true;
}

static bool weight_of(const exec_tensor *t, fp8_scaling scaling, bool turned, const fast_product *p,
                      fp8_weight *w)
{
  if ((t->type != DTYPE_BF16 && t->type != DTYPE_FP32) || !exec_is_contiguous(t) ||
      exec_elements(t) != p->n * p->k)
    return false;
  *w = (fp8_weight){ .data = t->data,
                     .fp32 = t->type == DTYPE_FP32,
                     .turned = turned,
                     .outer = p->n,
                     .inner = p->k,
                     .scaling = scaling };
  return true;
}

/* The second factor is e4m3, also beside an e5m2 factor. */
bool fp8_factors_of(const exec_call *c, fast_product *p, fp8_weight *weight)
{
  int code = (int)c->call->scalars[GEMM_FP8];
  fp8_scaling scaling = fp8_scaling_of(code);
  gemm_layout layout = (gemm_layout)c->call->scalars[GEMM_LAYOUT];
  const exec_tensor *second = &c->reads[1];
  if (scaling == FP8_MX || layout == GEMM_TN || p->batch != 1 ||
      !copy_of(&c->reads[0], scaling, p->m, p->k, layout == GEMM_TN_COPIES, &p->a))
    return false;
  p->a.e5m2 = (code & FP8_E5M2) != 0;
  if (second->type != DTYPE_FP8) {
    if (!weight_of(second, scaling, layout == GEMM_NN, p, weight)) return false;
    p->b = (fast_matrix){ .type = DTYPE_FP8,
                          .row_stride = p->k,
                          .column_stride = 1,
                          .scaling = scaling_of(scaling, true) };
  } else if (layout == GEMM_NN || !copy_of(second, scaling, p->n, p->k, true, &p->b)) {
    return false;
  }
  p->b = fast_transposed(p->b);
  return true;
}

static int64_t scale_bytes(const fp8_weight *w)
{
  int64_t tiles = ceil_div(w->outer, FP8_WEIGHT_TILE) *
                  round_up(ceil_div(w->inner, FP8_WEIGHT_TILE), FP8_BLOCK_ROWS);
  return round_up((w->scaling == FP8_BLOCKS ? tiles : 1) * (int64_t)sizeof(float), PLACE);
}

int64_t fp8_rounded_bytes(const fp8_weight *w)
{
  return round_up(w->outer * w->inner, PLACE) + scale_bytes(w) +
         fp8_weight_tiles(w->outer, w->inner) * (int64_t)sizeof(float);
}

void fp8_place_rounded(fp8_weight *w, void *at, fast_product *p)
{
  char *scales = (char *)at + round_up(w->outer * w->inner, PLACE);
  w->codes = at;
  w->scales = (float *)(void *)scales;
  w->maxima = (float *)(void *)(scales + scale_bytes(w));
  p->b.data = w->codes;
  p->b.scales = w->scales;
}
