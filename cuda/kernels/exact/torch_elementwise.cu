/* ref/kernels/torch_elementwise.c for GPUs. */
#include "cuda/kernels/operands.cuh"

enum { MOST_READS = 2 };

/* A function of one operand gets 0 for an element of the second. */
template <int READS, class F>
static void map_one(cuda_call *c, uint32_t first_read, tensor y, F function)
{
  tensor a = read_of(c->of, first_read), b = read_of(c->of, first_read + READS - 1);
  assert(elements_of(a) == elements_of(y) && elements_of(b) == elements_of(y));
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) {
        store(y, i, function(load(a, i), READS == MOST_READS ? load(b, i) : 0));
      });
}

/* Several tensors, too, each into its own result. */
template <int READS, class F> static void map(cuda_call *c, F function)
{
  static_assert(READS == 1 || READS == MOST_READS, "one operand or two");
  assert(c->of->read_count == READS * c->of->write_count);
  for (uint32_t i = 0; i < c->of->write_count; i++)
    map_one<READS>(c, i * READS, write_of(c->of, i), function);
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

/* Kernel, operands read, what it writes of their elements `a` and `b`. `number`: the call's first scalar. */
/* clang-format off */
#define FUNCTIONS(X) \
  X(multiply,          2, a * b) \
  X(scale,             1, a * number) \
  X(divide,            1, a / number) \
  X(add_number,        1, a + number) \
  X(square,            1, a * a) \
  X(cube,              1, a * a * a) \
  X(rsqrt,             1, exact_rsqrtf(a)) \
  X(negate,            1, -a) \
  X(cosine,            1, exact_cosf(a)) \
  X(sine,              1, exact_sinf(a)) \
  X(exponential,       1, exact_expf(a)) \
  X(tanh_forward,      1, exact_tanhf(a)) \
  X(tanh_backward,     2, a * (1 - b * b))         /* gy, y */ \
  X(silu_forward,      1, a / (1 + exact_expf(-a))) \
  X(silu_backward,     2, silu_gradient(a, b))     /* gy, x */ \
  X(sigmoid_forward,   1, 1 / (1 + exact_expf(-a))) \
  X(sigmoid_backward,  2, a * ((1 - b) * b))       /* gy, y */ \
  X(softplus_forward,  1, softplus(a)) \
  X(softplus_backward, 2, softplus_gradient(a, b)) /* gy, x */
/* clang-format on */

#define FUNCTION(name, reads, value)                                                               \
  struct name##_of {                                                                               \
    float number;                                                                                  \
    DEVICE float operator()(float a, float b) const                                                \
    {                                                                                              \
      (void)b;                                                                                     \
      return value;                                                                                \
    }                                                                                              \
  };                                                                                               \
  extern "C" void EXACT(name)(cuda_call * c)                                                       \
  {                                                                                                \
    map<reads>(c, name##_of{ scalar_of(c->of, 0) });                                               \
  }
FUNCTIONS(FUNCTION)
