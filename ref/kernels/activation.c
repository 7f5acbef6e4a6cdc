/*
 * Activations of an MLP. Formulas: Megatron-LM core/fusions/fused_bias_gelu.py,
 * fused_bias_swiglu.py and fused_bias_geglu.py, and PyTorch's gelu (both approximations), silu and
 * relu.
 */
#include "ref/kernels/activation.h"

#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"

static const real half = (real)0.5, cubic = (real)0.044715, quick = (real)1.702;
static const real sqrt_2_over_pi = (real)0.79788456080286535588;
static const real sqrt_half = (real)0.70710678118654752440;
static const real sqrt_1_over_2_pi = (real)0.39894228040143267794;

static real gelu_tanh(real x)
{
  real inner = sqrt_2_over_pi * (x + cubic * (x * x * x));
  return half * x * (1 + real_tanh(inner));
}

static real gelu_tanh_slope(real x)
{
  real t = real_tanh(sqrt_2_over_pi * (x + cubic * (x * x * x)));
  real inner_slope = sqrt_2_over_pi * (1 + 3 * cubic * (x * x));
  return half * (1 + t) + half * x * ((1 - t * t) * inner_slope);
}

static real gelu_erf(real x)
{
  return x * half * (1 + real_erf(x * sqrt_half));
}

static real gelu_erf_slope(real x)
{
  real density = sqrt_1_over_2_pi * real_exp(-half * (x * x));
  return half * (1 + real_erf(x * sqrt_half)) + x * density;
}

static real swish(real x, real steepness)
{
  return x * real_sigmoid(steepness * x);
}

static real swish_slope(real x, real steepness)
{
  real s = real_sigmoid(steepness * x);
  return s + steepness * x * (s * (1 - s));
}

real ref_activation_of(activation_function f, real x)
{
  switch (f) {
  case ACTIVATION_GELU_TANH: return gelu_tanh(x);
  case ACTIVATION_GELU_ERF: return gelu_erf(x);
  case ACTIVATION_SILU: return swish(x, 1);
  case ACTIVATION_QUICK_GELU: return swish(x, quick);
  case ACTIVATION_SQUARED_RELU: return x > 0 ? x * x : 0;
  }
  assert(0 && "no such activation");
  return 0;
}

real ref_activation_slope(activation_function f, real x)
{
  switch (f) {
  case ACTIVATION_GELU_TANH: return gelu_tanh_slope(x);
  case ACTIVATION_GELU_ERF: return gelu_erf_slope(x);
  case ACTIVATION_SILU: return swish_slope(x, 1);
  case ACTIVATION_QUICK_GELU: return swish_slope(x, quick);
  case ACTIVATION_SQUARED_RELU: return x > 0 ? 2 * x : 0;
  }
  assert(0 && "no such activation");
  return 0;
}

/* One row of the input: x + bias, if there is one, in `real`. */
static void load_biased(const exec_tensor *x, const exec_tensor *bias, int64_t row, int64_t width,
                        real *to)
{
  ref_load_row(x, row * width, width, to);
  if (bias == NULL) return;
  for (int64_t i = 0; i < width; i++)
    to[i] += ref_load(bias, i);
}

/* y = f(x + bias), or of rows in two halves y = f(first) second. reads x [rows, inputs][, bias],
 * writes y [rows, outputs]. */
void ref_activation_forward(const exec_call *c)
{
  const activation_function f = (activation_function)c->call->scalars[0];
  bool gated = c->call->scalars[1] != 0;
  int64_t rows = exec_dim(c, 0), outputs = exec_elements(&c->writes[0]) / rows;
  int64_t inputs = gated ? 2 * outputs : outputs;
  real *x = ref_reals(inputs);
  assert(exec_elements(&c->reads[0]) == rows * inputs);
  for (int64_t r = 0; r < rows; r++) {
    load_biased(&c->reads[0], c->read_count > 1 ? &c->reads[1] : NULL, r, inputs, x);
    for (int64_t i = 0; i < outputs; i++)
      x[i] = gated ? ref_activation_of(f, x[i]) * x[outputs + i] : ref_activation_of(f, x[i]);
    ref_store_row(&c->writes[0], r * outputs, outputs, x);
  }
  free(x);
}

/* gx = gy f'(x + bias); gated: gy second f'(first), then gy f(first). reads gy, x[, bias], writes
 * gx. */
void ref_activation_backward(const exec_call *c)
{
  const activation_function f = (activation_function)c->call->scalars[0];
  bool gated = c->call->scalars[1] != 0;
  int64_t rows = exec_dim(c, 0), outputs = exec_elements(&c->reads[0]) / rows;
  int64_t inputs = gated ? 2 * outputs : outputs;
  real *x = ref_reals(inputs + outputs), *gy = x + inputs;
  assert(exec_elements(&c->reads[1]) == rows * inputs &&
         exec_elements(&c->writes[0]) == rows * inputs);
  for (int64_t r = 0; r < rows; r++) {
    load_biased(&c->reads[1], c->read_count > 2 ? &c->reads[2] : NULL, r, inputs, x);
    ref_load_row(&c->reads[0], r * outputs, outputs, gy);
    for (int64_t i = 0; i < outputs; i++) {
      real slope = ref_activation_slope(f, x[i]);
      if (gated) {
        real of_second = gy[i] * ref_activation_of(f, x[i]);
        x[i] = gy[i] * x[outputs + i] * slope;
        x[outputs + i] = of_second;
      } else {
        x[i] = gy[i] * slope;
      }
    }
    ref_store_row(&c->writes[0], r * inputs, inputs, x);
  }
  free(x);
}
