/* ref/kernels/torch_elementwise.c for GPUs. */
#include "cuda/kernels/operands.cuh"

template <class F> static void map_one(cuda_call *c, tensor x, tensor y, F function)
{
  assert(elements_of(x) == elements_of(y));
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) { store(y, i, function(load(x, i))); });
}

/* Several tensors, too, each into its own result. */
template <class F> static void map(cuda_call *c, F function)
{
  assert(c->of->read_count == c->of->write_count);
  for (uint32_t i = 0; i < c->of->read_count; i++)
    map_one(c, read_of(c->of, i), write_of(c->of, i), function);
}

template <class F> static void map_two(cuda_call *c, F function)
{
  tensor a = read_of(c->of, 0), b = read_of(c->of, 1), y = write_of(c->of, 0);
  assert(c->of->read_count == 2 && elements_of(a) == elements_of(y) &&
         elements_of(b) == elements_of(y));
  for_each(
      c, elements_of(y),
      KERNEL_LAMBDA(int64_t i) { store(y, i, function(load(a, i), load(b, i))); });
}

/* (gy s) (1 + x (1 - s)) with s = 1 / (1 + exp(-x)) */
static DEVICE float silu_gradient(float gy, float x)
{
  float s = 1 / (1 + exact_expf(-x));
  return gy * s * (1 + x * (1 - s));
}

enum { SOFTPLUS_THRESHOLD = 20 };

static DEVICE float softplus(float x)
{
  return x > SOFTPLUS_THRESHOLD ? x : exact_logf(1 + exact_expf(x));
}

/* gy (z / (z + 1)) with z = exp(x) */
static DEVICE float softplus_gradient(float gy, float x)
{
  if (x > SOFTPLUS_THRESHOLD) return gy;
  float z = exact_expf(x);
  return gy * (z / (z + 1));
}

/* Kernels that read one operand, and what they write. `number`: the call's first scalar. */
/* clang-format off */
#define FUNCTIONS(X) \
  X(scale,            a * number) \
  X(divide,           a / number) \
  X(add_number,       a + number) \
  X(square,           a * a) \
  X(cube,             a * a * a) \
  X(rsqrt,            exact_rsqrtf(a)) \
  X(negate,           -a) \
  X(cosine,           exact_cosf(a)) \
  X(sine,             exact_sinf(a)) \
  X(exponential,      exact_expf(a)) \
  X(tanh_forward,     exact_tanhf(a)) \
  X(silu_forward,     a / (1 + exact_expf(-a))) \
  X(sigmoid_forward,  1 / (1 + exact_expf(-a))) \
  X(softplus_forward, softplus(a))

/* ... and two. */
#define FUNCTIONS_OF_TWO(X) \
  X(multiply,          a * b) \
  X(tanh_backward,     a * (1 - b * b))         /* gy, y */ \
  X(silu_backward,     silu_gradient(a, b))     /* gy, x */ \
  X(sigmoid_backward,  a * ((1 - b) * b))       /* gy, y */ \
  X(softplus_backward, softplus_gradient(a, b)) /* gy, x */
/* clang-format on */

#define FUNCTION(name, value)                                                                      \
  struct name##_of {                                                                               \
    float number;                                                                                  \
    DEVICE float operator()(float a) const                                                         \
    {                                                                                              \
      return value;                                                                                \
    }                                                                                              \
  };                                                                                               \
  extern "C" void EXACT(name)(cuda_call * c)                                                       \
  {                                                                                                \
    map(c, name##_of{ scalar_of(c->of, 0) });                                                      \
  }
FUNCTIONS(FUNCTION)

#define FUNCTION_OF_TWO(name, value)                                                               \
  struct name##_of {                                                                               \
    DEVICE float operator()(float a, float b) const                                                \
    {                                                                                              \
      return value;                                                                                \
    }                                                                                              \
  };                                                                                               \
  extern "C" void EXACT(name)(cuda_call * c)                                                       \
  {                                                                                                \
    map_two(c, name##_of());                                                                       \
  }
FUNCTIONS_OF_TWO(FUNCTION_OF_TWO)
