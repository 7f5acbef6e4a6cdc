/*
 * RMSNorm and LayerNorm (Transformer Engine: common/normalization), and Megatron-LM's L2Norm, an
 * RMSNorm without gain (core/transformer/torch_norm.py). Sums run over the columns of a
 * row, those of gamma's and beta's gradients over the rows, ascending, in one accumulator each.
 *
 * zero_centred: the rows are multiplied by 1 + gamma.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

/* The factors of a row's columns. */
static void load_gamma(const exec_tensor *gamma, int64_t h, real zero_centred, real *to)
{
  assert(exec_elements(gamma) == h);
  ref_load_row(gamma, 0, h, to);
  if (zero_centred != 0)
    for (int64_t i = 0; i < h; i++)
      to[i] += 1;
}

static real mean_of(const real *x, int64_t h)
{
  real sum = 0;
  for (int64_t i = 0; i < h; i++)
    sum += x[i];
  return sum / (real)h;
}

/* 1 / sqrt(mean of (x - mean)^2 + epsilon). */
static real rstd_of(const real *x, int64_t h, real mean, real epsilon)
{
  real sum = 0;
  for (int64_t i = 0; i < h; i++)
    sum += (x[i] - mean) * (x[i] - mean);
  return real_rsqrt(sum / (real)h + epsilon);
}

/* y = (x - mean) rstd gamma [+ beta]; reads x, gamma[, beta], writes y[, rstd][, mean]; RMSNorm has
 * neither mean nor beta. */
static void forward(const exec_call *c, bool centres)
{
  int64_t rows = exec_dim(c, 0), h = exec_dim(c, 1);
  real *x = ref_reals(3 * h), *gamma = x + h, *beta = gamma + h;
  assert(c->read_count == 2 + (uint32_t)centres && exec_elements(&c->reads[0]) == rows * h);
  load_gamma(&c->reads[1], h, ref_scalar(c, 1), gamma);
  if (centres) ref_load_row(&c->reads[2], 0, h, beta);
  for (int64_t r = 0; r < rows; r++) {
    ref_load_row(&c->reads[0], r * h, h, x);
    real mean = centres ? mean_of(x, h) : 0;
    real rstd = rstd_of(x, h, mean, ref_scalar(c, 0));
    for (int64_t i = 0; i < h; i++) {
      x[i] = (x[i] - mean) * rstd * gamma[i];
      if (centres) x[i] += beta[i];
    }
    ref_store_row(&c->writes[0], r * h, h, x);
    if (c->write_count > 1) ref_store(&c->writes[1], r, rstd);
    if (centres && c->write_count > 2) ref_store(&c->writes[2], r, mean);
  }
  free(x);
}

void ref_rmsnorm_forward(const exec_call *c)
{
  forward(c, false);
}

void ref_layernorm_forward(const exec_call *c)
{
  forward(c, true);
}

/* One row's part of the gradients. `x` is normalised, `gy` is not. */
typedef struct norm_row {
  int64_t h;
  const real *gamma, *x, *gy;
  real rstd;
  bool centres;
} norm_row;

/* gx = rstd (g - [mean(g)] - x mean(g x)), g = gy gamma. */
static void row_gradient(const norm_row *n, real *gx)
{
  real sum = 0, product = 0;
  for (int64_t i = 0; i < n->h; i++) {
    real g = n->gy[i] * n->gamma[i];
    sum += g;
    product += g * n->x[i];
  }
  real mean = n->centres ? sum / (real)n->h : 0, slope = product / (real)n->h;
  for (int64_t i = 0; i < n->h; i++)
    gx[i] = n->rstd * (n->gy[i] * n->gamma[i] - mean - n->x[i] * slope);
}

/* reads gy, x, rstd[, mean], gamma, writes gx[, ggamma[, gbeta]]: frozen parameters have none. */
static void backward(const exec_call *c, bool centres)
{
  int64_t rows = exec_dim(c, 0), h = exec_dim(c, 1);
  real *gamma = ref_reals(6 * h), *x = gamma + h, *gy = x + h, *gx = gy + h, *ggamma = gx + h;
  real *gbeta = ggamma + h;
  assert(c->read_count == 4 + (uint32_t)centres && exec_elements(&c->reads[1]) == rows * h);
  load_gamma(&c->reads[c->read_count - 1], h, ref_scalar(c, 0), gamma);
  for (int64_t i = 0; i < h; i++)
    ggamma[i] = gbeta[i] = 0;
  for (int64_t r = 0; r < rows; r++) {
    norm_row n = { h, gamma, x, gy, ref_load(&c->reads[2], r), centres };
    real mean = centres ? ref_load(&c->reads[3], r) : 0;
    ref_load_row(&c->reads[0], r * h, h, gy);
    ref_load_row(&c->reads[1], r * h, h, x);
    for (int64_t i = 0; i < h; i++) {
      x[i] = (x[i] - mean) * n.rstd;
      ggamma[i] += gy[i] * x[i];
      gbeta[i] += gy[i];
    }
    row_gradient(&n, gx);
    ref_store_row(&c->writes[0], r * h, h, gx);
  }
  if (c->write_count > 1) ref_store_row(&c->writes[1], 0, h, ggamma);
  if (c->write_count > 2) ref_store_row(&c->writes[2], 0, h, gbeta);
  free(gamma);
}

void ref_rmsnorm_backward(const exec_call *c)
{
  backward(c, false);
}

void ref_layernorm_backward(const exec_call *c)
{
  backward(c, true);
}

/* y = x rstd; reads x, writes y, rstd. */
void ref_unscaled_norm_forward(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), h = exec_dim(c, 1);
  real *x = ref_reals(h);
  assert(c->read_count == 1 && exec_elements(&c->reads[0]) == rows * h);
  assert(REF_WRITES(c, rows * h, rows));
  for (int64_t r = 0; r < rows; r++) {
    ref_load_row(&c->reads[0], r * h, h, x);
    real rstd = rstd_of(x, h, 0, ref_scalar(c, 0));
    for (int64_t i = 0; i < h; i++)
      x[i] *= rstd;
    ref_store_row(&c->writes[0], r * h, h, x);
    ref_store(&c->writes[1], r, rstd);
  }
  free(x);
}

/* gx = rstd (gy - x mean(gy x)), x normalised; reads gy, x, rstd. */
void ref_unscaled_norm_backward(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), h = exec_dim(c, 1);
  real *x = ref_reals(2 * h), *gy = x + h;
  assert(c->read_count == 3 && exec_elements(&c->reads[1]) == rows * h);
  assert(REF_WRITES(c, rows * h));
  for (int64_t r = 0; r < rows; r++) {
    real rstd = ref_load(&c->reads[2], r), product = 0;
    ref_load_row(&c->reads[0], r * h, h, gy);
    ref_load_row(&c->reads[1], r * h, h, x);
    for (int64_t i = 0; i < h; i++) {
      x[i] *= rstd;
      product += gy[i] * x[i];
    }
    real slope = product / (real)h;
    for (int64_t i = 0; i < h; i++)
      gy[i] = rstd * (gy[i] - x[i] * slope);
    ref_store_row(&c->writes[0], r * h, h, gy);
  }
  free(x);
}
