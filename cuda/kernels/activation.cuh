/* The functions of activation_function and their derivatives on the device: the twin of
 * ref/kernels/activation.h. */
#ifndef OFFSIM_CUDA_KERNELS_ACTIVATION_CUH
#define OFFSIM_CUDA_KERNELS_ACTIVATION_CUH

#include "cuda/kernels/tensor.cuh"

DEVICE static inline float gelu_inner(float x)
{
  const float cubic = 0.044715f, sqrt_2_over_pi = 0.79788456080286535588f;
  return sqrt_2_over_pi * (x + cubic * (x * x * x));
}

DEVICE static inline float gelu_tanh(float x)
{
  return 0.5f * x * (1 + exact_tanhf(gelu_inner(x)));
}

DEVICE static inline float gelu_tanh_slope(float x)
{
  const float cubic = 0.044715f, sqrt_2_over_pi = 0.79788456080286535588f;
  float t = exact_tanhf(gelu_inner(x));
  float inner_slope = sqrt_2_over_pi * (1 + 3 * cubic * (x * x));
  return 0.5f * (1 + t) + 0.5f * x * ((1 - t * t) * inner_slope);
}

DEVICE static inline float gelu_erf(float x)
{
  const float sqrt_half = 0.70710678118654752440f;
  return x * 0.5f * (1 + exact_erff(x * sqrt_half));
}

DEVICE static inline float gelu_erf_slope(float x)
{
  const float sqrt_half = 0.70710678118654752440f, sqrt_1_over_2_pi = 0.39894228040143267794f;
  float density = sqrt_1_over_2_pi * exact_expf(-0.5f * (x * x));
  return 0.5f * (1 + exact_erff(x * sqrt_half)) + x * density;
}

DEVICE static inline float swish(float x, float steepness)
{
  return x * exact_sigmoidf(steepness * x);
}

DEVICE static inline float swish_slope(float x, float steepness)
{
  float s = exact_sigmoidf(steepness * x);
  return s + steepness * x * (s * (1 - s));
}

DEVICE static inline float activation_of(activation_function f, float x)
{
  const float quick = 1.702f;
  switch (f) {
  case ACTIVATION_GELU_TANH: return gelu_tanh(x);
  case ACTIVATION_GELU_ERF: return gelu_erf(x);
  case ACTIVATION_SILU: return swish(x, 1);
  case ACTIVATION_QUICK_GELU: return swish(x, quick);
  default: return x > 0 ? x * x : 0; /* ACTIVATION_SQUARED_RELU */
  }
}

DEVICE static inline float activation_slope(activation_function f, float x)
{
  const float quick = 1.702f;
  switch (f) {
  case ACTIVATION_GELU_TANH: return gelu_tanh_slope(x);
  case ACTIVATION_GELU_ERF: return gelu_erf_slope(x);
  case ACTIVATION_SILU: return swish_slope(x, 1);
  case ACTIVATION_QUICK_GELU: return swish_slope(x, quick);
  default: return x > 0 ? 2 * x : 0; /* ACTIVATION_SQUARED_RELU */
  }
}

#endif
