/* Rows of ref/kernels/elementwise.c and torch_elementwise.c whose element i depends on the
 * elements i. */
#include "cuda/kernels/fast/activation.cuh"
#include "cuda/kernels/fast/map.cuh"

static bool one_suits(const exec_call *c)
{
  return c->read_count == 1 && c->write_count == 1 && map_suits<1, 1>(c->reads, c->writes);
}

static bool two_suits(const exec_call *c)
{
  return c->read_count == 2 && c->write_count == 1 && map_suits<2, 1>(c->reads, c->writes);
}

/* A row of one or two numbers read, and `number`, the call's first scalar. */
#define MAP_ROW(name, count, suits, value)                                                         \
  struct name##_of {                                                                               \
    float number;                                                                                  \
    __device__ void operator()(const float *x, float *y) const                                     \
    {                                                                                              \
      y[0] = value;                                                                                \
    }                                                                                              \
  };                                                                                               \
  KERNEL_SUITS(name)                                                                               \
  {                                                                                                \
    return suits(c);                                                                               \
  }                                                                                                \
  KERNEL_LAUNCH(name)                                                                              \
  {                                                                                                \
    name##_of f = { (float)c->of->call->scalars[0] };                                              \
    map<count, 1>(c, c->of->reads, c->of->writes, f);                                              \
  }

/* clang-format off */
MAP_ROW(add,           2, two_suits, x[0] + x[1])
MAP_ROW(multiply,      2, two_suits, x[0] * x[1])
MAP_ROW(divide,        1, one_suits, x[0] / number)
MAP_ROW(add_number,    1, one_suits, x[0] + number)
MAP_ROW(square,        1, one_suits, x[0] * x[0])
MAP_ROW(cube,          1, one_suits, x[0] * x[0] * x[0])
MAP_ROW(rsqrt,         1, one_suits, rsqrtf(x[0]))
MAP_ROW(negate,        1, one_suits, -x[0])
MAP_ROW(cosine,        1, one_suits, cosf(x[0]))
MAP_ROW(sine,          1, one_suits, sinf(x[0]))
MAP_ROW(silu_forward,  1, one_suits, silu::value(x[0]))
MAP_ROW(silu_backward, 2, two_suits, x[0] * silu::slope(x[1]))
/* clang-format on */

/* Several tensors, each into its own result. */
struct scale_of {
  float number;
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = x[0] * number;
  }
};

KERNEL_SUITS(scale)
{
  bool suits = c->read_count == c->write_count;
  for (uint32_t i = 0; suits && i < c->read_count; i++)
    suits = map_suits<1, 1>(&c->reads[i], &c->writes[i]);
  return suits;
}

KERNEL_LAUNCH(scale)
{
  scale_of f = { (float)c->of->call->scalars[0] };
  for (uint32_t i = 0; i < c->of->read_count; i++)
    map<1, 1>(c, &c->of->reads[i], &c->of->writes[i], f);
}

/* Reads gate, up. */
struct gated_silu_of {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = silu::value(x[0]) * x[1];
  }
};

KERNEL_SUITS(gated_silu_forward)
{
  return two_suits(c);
}

KERNEL_LAUNCH(gated_silu_forward)
{
  map<2, 1>(c, c->of->reads, c->of->writes, gated_silu_of{});
}

/* Reads gy, gate, up. */
struct gated_silu_gradients {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = x[0] * x[2] * silu::slope(x[1]);
    y[1] = x[0] * silu::value(x[1]);
  }
};

struct gated_silu_again {
  __device__ void operator()(const float *x, float *y) const
  {
    float value = silu::value(x[1]);
    y[0] = value * x[2];
    y[1] = x[0] * x[2] * silu::slope(x[1]);
    y[2] = x[0] * value;
  }
};

KERNEL_SUITS(gated_silu_backward)
{
  if (c->read_count != 3) return false;
  return c->write_count == 3   ? map_suits<3, 3>(c->reads, c->writes)
         : c->write_count == 2 ? map_suits<3, 2>(c->reads, c->writes)
                               : false;
}

KERNEL_LAUNCH(gated_silu_backward)
{
  if (c->of->write_count == 3)
    map<3, 3>(c, c->of->reads, c->of->writes, gated_silu_again{});
  else
    map<3, 2>(c, c->of->reads, c->of->writes, gated_silu_gradients{});
}
