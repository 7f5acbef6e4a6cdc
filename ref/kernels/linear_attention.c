/*
 * Linear attention beside the delta rule: convolution, norms of queries and keys, sums of the decay.
 *
 * Sources of the formulas: csrc/causal_conv1d_fwd.cu, causal_conv1d_bwd.cu of causal-conv1d;
 * fla/modules/l2norm.py, fla/ops/utils/cumsum.py of flash-linear-attention.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

typedef struct convolution {
  int64_t batch, tokens, channels, width;
  const exec_tensor *x, *weight;
} convolution;

static convolution convolution_of(const exec_call *c, const exec_tensor *x)
{
  convolution of = { exec_dim(c, 0), exec_dim(c, 1), exec_dim(c, 2), exec_dim(c, 3), x, x + 1 };
  assert(exec_elements(x) == of.batch * of.tokens * of.channels);
  assert(exec_elements(x + 1) == of.channels * of.width);
  return of;
}

/* x at a channel's position; 0 before its first. */
static real at(const convolution *of, int64_t sequence, int64_t position, int64_t channel)
{
  int64_t row = sequence * of->tokens + position;
  return position < 0 ? 0 : ref_load(of->x, row * of->channels + channel);
}

/* w[0] x[t - width + 1] + ... + w[width - 1] x[t], ascending, from 0. */
static real sum_at(const convolution *of, int64_t sequence, int64_t position, int64_t channel)
{
  real sum = 0;
  for (int64_t w = 0; w < of->width; w++)
    sum += ref_load(of->weight, channel * of->width + w) *
           at(of, sequence, position - of->width + 1 + w, channel);
  return sum;
}

/* y / (1 + exp(-y)) of that sum. Reads x, the weight. */
void ref_causal_conv_forward(const exec_call *c)
{
  convolution of = convolution_of(c, c->reads);
  assert(c->read_count == 2 && REF_WRITES(c, of.batch * of.tokens * of.channels));
  for (int64_t i = 0; i < of.batch * of.tokens * of.channels; i++) {
    int64_t row = i / of.channels;
    real y = sum_at(&of, row / of.tokens, row % of.tokens, i % of.channels);
    ref_store(&c->writes[0], i, y / (1 + real_exp(-y)));
  }
}

/* The gradient of the sum: (gy s) (1 + y (1 - s)) with s = 1 / (1 + exp(-y)). */
static real sum_gradient(const convolution *of, const exec_tensor *gy, int64_t sequence,
                         int64_t position, int64_t channel)
{
  if (position >= of->tokens) return 0;
  real y = sum_at(of, sequence, position, channel);
  real s = 1 / (1 + real_exp(-y));
  real g = ref_load(gy, (sequence * of->tokens + position) * of->channels + channel);
  return g * s * (1 + y * (1 - s));
}

/*
 * Reads gy, x, the weight. gx[t] = w[width - 1] g[t] + w[width - 2] g[t + 1] + ..., from 0, with g the
 * gradient of the sum; the gradient of w[i] is the sum of g[t] x[t - width + 1 + i] over sequences,
 * then positions, ascending.
 */
void ref_causal_conv_backward(const exec_call *c)
{
  convolution of = convolution_of(c, c->reads + 1);
  int64_t elements = of.batch * of.tokens * of.channels;
  assert(c->read_count == 3 && exec_elements(&c->reads[0]) == elements);
  assert(REF_WRITES(c, elements, of.channels * of.width));
  real *g = ref_reals(elements);
  for (int64_t i = 0; i < elements; i++) {
    int64_t row = i / of.channels;
    g[i] = sum_gradient(&of, &c->reads[0], row / of.tokens, row % of.tokens, i % of.channels);
  }
  for (int64_t i = 0; i < of.channels * of.width; i++) {
    int64_t channel = i / of.width, back = of.width - 1 - i % of.width;
    real sum = 0;
    for (int64_t row = 0; row < of.batch * of.tokens; row++)
      sum += g[row * of.channels + channel] *
             at(&of, row / of.tokens, row % of.tokens - back, channel);
    ref_store(&c->writes[1], i, sum);
  }
  for (int64_t i = 0; i < elements; i++) {
    int64_t row = i / of.channels, channel = i % of.channels;
    real sum = 0;
    for (int64_t w = 0; w < of.width && row % of.tokens + w < of.tokens; w++)
      sum += ref_load(of.weight, channel * of.width + of.width - 1 - w) *
             g[(row + w) * of.channels + channel];
    ref_store(&c->writes[0], i, sum);
  }
  free(g);
}

/* inverse = 1 / sqrt(sum of x x, ascending, + epsilon); y = x inverse */
void ref_l2norm_forward(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), width = exec_dim(c, 1);
  assert(REF_READS(c, rows * width) && REF_WRITES(c, rows * width, rows));
  real *x = ref_reals(width);
  for (int64_t row = 0; row < rows; row++) {
    real sum = 0;
    ref_load_row(&c->reads[0], row * width, width, x);
    for (int64_t i = 0; i < width; i++)
      sum += x[i] * x[i];
    real inverse = real_rsqrt(sum + ref_scalar(c, 0));
    for (int64_t i = 0; i < width; i++)
      x[i] *= inverse;
    ref_store_row(&c->writes[0], row * width, width, x);
    ref_store(&c->writes[1], row, inverse);
  }
  free(x);
}

/* Reads gy, y, inverse. gx = gy inverse - (sum of gy y, ascending) (y inverse) */
void ref_l2norm_backward(const exec_call *c)
{
  int64_t rows = exec_dim(c, 0), width = exec_dim(c, 1);
  assert(REF_READS(c, rows * width, rows * width, rows) && REF_WRITES(c, rows * width));
  real *gy = ref_reals(width), *y = ref_reals(width);
  for (int64_t row = 0; row < rows; row++) {
    real sum = 0, inverse = ref_load(&c->reads[2], row);
    ref_load_row(&c->reads[0], row * width, width, gy);
    ref_load_row(&c->reads[1], row * width, width, y);
    for (int64_t i = 0; i < width; i++)
      sum += gy[i] * y[i];
    for (int64_t i = 0; i < width; i++)
      gy[i] = gy[i] * inverse - sum * (y[i] * inverse);
    ref_store_row(&c->writes[0], row * width, width, gy);
  }
  free(y);
  free(gy);
}

/* x [batch, tokens, heads]: of each head and chunk the sums up to each position, from the chunk's
 * first; reversed: from each position on, from its last. */
void ref_chunk_sums(const exec_call *c)
{
  int64_t batch = exec_dim(c, 0), tokens = exec_dim(c, 1), heads = exec_dim(c, 2);
  int64_t chunk = exec_dim(c, 3);
  bool reversed = c->call->scalars[0] != 0;
  assert(REF_READS(c, batch * tokens * heads) && REF_WRITES(c, batch * tokens * heads));
  for (int64_t column = 0; column < batch * heads; column++) {
    int64_t first = column / heads * tokens * heads + column % heads;
    real sum = 0;
    for (int64_t i = 0; i < tokens; i++) {
      int64_t t = reversed ? tokens - 1 - i : i;
      bool begins = reversed ? t == tokens - 1 || (t + 1) % chunk == 0 : t % chunk == 0;
      sum = (begins ? 0 : sum) + ref_load(&c->reads[0], first + t * heads);
      ref_store(&c->writes[0], first + t * heads, sum);
    }
  }
}
