/*
 * Elementwise kernels of eager PyTorch. Element i of the writes depends on the elements i of the
 * reads, by ascending i; all operands have the same number of elements (a broadcast one is a view
 * that repeats its elements) and may be the same tensor.
 *
 * Source of the formulas: aten/src/ATen/native/cuda/ActivationSiluKernel.cu, PowKernel.cu, and
 * torch/csrc/autograd/FunctionsManual.cpp.
 */
#include <assert.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/real_math.h"
#include "ref/kernels/storage.h"
#include "sim/base/units.h"

enum { RUN = 256, MOST_READS = 2 }; /* elements at a time */

/* `a`, `b`: an element of the first operand read, and of the second, if there is one. `number`: the call's
 * first scalar. */
typedef real element_function(real a, real b, real number);

static void map_one(const exec_tensor *reads, uint32_t read_count, const exec_tensor *write,
                    element_function *function, real number)
{
  int64_t elements = exec_elements(write);
  real from[MOST_READS][RUN] = { { 0 } }, to[RUN];
  for (uint32_t r = 0; r < read_count; r++)
    assert(exec_elements(&reads[r]) == elements && "operands of one number of elements");
  for (int64_t done = 0; done < elements; done += RUN) {
    int64_t count = min_i64(RUN, elements - done);
    for (uint32_t r = 0; r < read_count; r++)
      ref_load_row(&reads[r], done, count, from[r]);
    for (int64_t i = 0; i < count; i++)
      to[i] = function(from[0][i], from[1][i], number);
    ref_store_row(write, done, count, to);
  }
}

/* Several tensors, too, each into its own result. */
static void map(const exec_call *c, uint32_t reads, element_function *function)
{
  assert(reads <= MOST_READS && c->read_count == reads * c->write_count);
  for (uint32_t i = 0; i < c->write_count; i++)
    map_one(&c->reads[i * reads], reads, &c->writes[i], function, ref_scalar(c, 0));
}

/* (gy s) (1 + x (1 - s)) with s = 1 / (1 + exp(-x)) */
static real silu_gradient(real gy, real x)
{
  real s = 1 / (1 + real_exp(-x));
  return gy * s * (1 + x * (1 - s));
}

enum { SOFTPLUS_THRESHOLD = 20 }; /* torch.nn.functional.softplus */

static real softplus(real x)
{
  return x > SOFTPLUS_THRESHOLD ? x : real_log(1 + real_exp(x));
}

/* gy (z / (z + 1)) with z = exp(x) */
static real softplus_gradient(real gy, real x)
{
  if (x > SOFTPLUS_THRESHOLD) return gy;
  real z = real_exp(x);
  return gy * (z / (z + 1));
}

/* Kernel, operands read, what it writes. */
/* clang-format off */
#define FUNCTIONS(X) \
  X(multiply,          2, a * b) \
  X(scale,             1, a * number) \
  X(divide,            1, a / number) \
  X(add_number,        1, a + number) \
  X(square,            1, a * a) \
  X(cube,              1, a * a * a) \
  X(rsqrt,             1, real_rsqrt(a)) \
  X(negate,            1, -a) \
  X(cosine,            1, real_cos(a)) \
  X(sine,              1, real_sin(a)) \
  X(exponential,       1, real_exp(a)) \
  X(tanh_forward,      1, real_tanh(a)) \
  X(tanh_backward,     2, a * (1 - b * b))         /* gy, y */ \
  X(silu_forward,      1, a / (1 + real_exp(-a))) \
  X(silu_backward,     2, silu_gradient(a, b))     /* gy, x */ \
  X(sigmoid_forward,   1, 1 / (1 + real_exp(-a))) \
  X(sigmoid_backward,  2, a * ((1 - b) * b))       /* gy, y */ \
  X(softplus_forward,  1, softplus(a)) \
  X(softplus_backward, 2, softplus_gradient(a, b)) /* gy, x */
/* clang-format on */

#define FUNCTION(name, reads, value)                                                               \
  static real name(real a, real b, real number)                                                    \
  {                                                                                                \
    (void)b;                                                                                       \
    (void)number;                                                                                  \
    return value;                                                                                  \
  }                                                                                                \
  void ref_##name(const exec_call *c)                                                              \
  {                                                                                                \
    map(c, reads, name);                                                                           \
  }
FUNCTIONS(FUNCTION)
