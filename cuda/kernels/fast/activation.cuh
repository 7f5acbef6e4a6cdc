/* The functions of activation_function (sim/plan/kernels.h) and their derivatives, by the GPU's own
 * exponential and tanh. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ACTIVATION_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ACTIVATION_CUH

#include "cuda/kernels/kernel.h"

static __device__ inline float sigmoid(float x)
{
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* 1 - 2 / (exp(2 x) + 1), which is good to a few ulp of 1. */
static __device__ inline float tanh_of(float x)
{
  return 1.0f - __fdividef(2.0f, __expf(2.0f * x) + 1.0f);
}

struct gelu_tanh {
  static __device__ inline float inner(float x)
  {
    return 0.79788456f * (x + 0.044715f * (x * x * x));
  }
  static __device__ inline float value(float x)
  {
    return 0.5f * x * (1.0f + tanh_of(inner(x)));
  }
  static __device__ inline float slope(float x)
  {
    float t = tanh_of(inner(x)), inner_slope = 0.79788456f * (1.0f + 3.0f * 0.044715f * (x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * ((1.0f - t * t) * inner_slope);
  }
};

struct gelu_erf {
  static __device__ inline float value(float x)
  {
    return x * 0.5f * (1.0f + erff(x * 0.70710678f));
  }
  static __device__ inline float slope(float x)
  {
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * (0.39894228f * __expf(-0.5f * (x * x)));
  }
};

struct silu {
  static __device__ inline float value(float x)
  {
    return x * sigmoid(x);
  }
  static __device__ inline float slope(float x)
  {
    float s = sigmoid(x);
    return s + x * (s * (1.0f - s));
  }
};

struct quick_gelu {
  static __device__ inline float value(float x)
  {
    return x * sigmoid(1.702f * x);
  }
  static __device__ inline float slope(float x)
  {
    float s = sigmoid(1.702f * x);
    return s + 1.702f * x * (s * (1.0f - s));
  }
};

struct squared_relu {
  static __device__ inline float value(float x)
  {
    return x > 0 ? x * x : 0;
  }
  static __device__ inline float slope(float x)
  {
    return x > 0 ? 2.0f * x : 0;
  }
};

/* Calls `call` with an instance of the function's type. */
template <class C> static inline void with_activation(activation_function f, C call)
{
  switch (f) {
  case ACTIVATION_GELU_TANH: return call(gelu_tanh{});
  case ACTIVATION_GELU_ERF: return call(gelu_erf{});
  case ACTIVATION_SILU: return call(silu{});
  case ACTIVATION_QUICK_GELU: return call(quick_gelu{});
  case ACTIVATION_SQUARED_RELU: return call(squared_relu{});
  }
}

#endif
