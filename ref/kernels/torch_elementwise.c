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

/* `x`: an element of every operand read; `number`: the call's first scalar. */
typedef real element_function(const real *x, real number);

static void map(const exec_call *c, uint32_t reads, element_function *function)
{
  int64_t elements = exec_elements(&c->writes[0]);
  real from[MOST_READS][RUN], to[RUN];
  assert(c->read_count == reads && reads <= MOST_READS && c->write_count == 1);
  for (uint32_t r = 0; r < reads; r++)
    assert(exec_elements(&c->reads[r]) == elements && "operands of one number of elements");
  for (int64_t done = 0; done < elements; done += RUN) {
    int64_t count = min_i64(RUN, elements - done);
    for (uint32_t r = 0; r < reads; r++)
      ref_load_row(&c->reads[r], done, count, from[r]);
    for (int64_t i = 0; i < count; i++) {
      real x[MOST_READS];
      for (uint32_t r = 0; r < reads; r++)
        x[r] = from[r][i];
      to[i] = function(x, ref_scalar(c, 0));
    }
    ref_store_row(&c->writes[0], done, count, to);
  }
}

static real product(const real *x, real number)
{
  (void)number;
  return x[0] * x[1];
}

void ref_multiply(const exec_call *c)
{
  map(c, 2, product);
}

static real scaled(const real *x, real number)
{
  return x[0] * number;
}

/* Also several tensors, each into its own result. */
void ref_scale(const exec_call *c)
{
  exec_call one = *c;
  one.read_count = one.write_count = 1;
  assert(c->read_count == c->write_count);
  for (uint32_t i = 0; i < c->read_count; i++, one.reads++, one.writes++)
    map(&one, 1, scaled);
}

static real divided(const real *x, real number)
{
  return x[0] / number;
}

void ref_divide(const exec_call *c)
{
  map(c, 1, divided);
}

static real increased(const real *x, real number)
{
  return x[0] + number;
}

void ref_add_number(const exec_call *c)
{
  map(c, 1, increased);
}

static real squared(const real *x, real number)
{
  (void)number;
  return x[0] * x[0];
}

void ref_square(const exec_call *c)
{
  map(c, 1, squared);
}

/* (x x) x */
static real cubed(const real *x, real number)
{
  (void)number;
  return x[0] * x[0] * x[0];
}

void ref_cube(const exec_call *c)
{
  map(c, 1, cubed);
}

static real inverse_root(const real *x, real number)
{
  (void)number;
  return real_rsqrt(x[0]);
}

void ref_rsqrt(const exec_call *c)
{
  map(c, 1, inverse_root);
}

static real tangent(const real *x, real number)
{
  (void)number;
  return real_tanh(x[0]);
}

void ref_tanh_forward(const exec_call *c)
{
  map(c, 1, tangent);
}

/* gy (1 - y y) */
static real tangent_gradient(const real *x, real number)
{
  (void)number;
  return x[0] * (1 - x[1] * x[1]);
}

void ref_tanh_backward(const exec_call *c)
{
  map(c, 2, tangent_gradient);
}

static real negated(const real *x, real number)
{
  (void)number;
  return -x[0];
}

void ref_negate(const exec_call *c)
{
  map(c, 1, negated);
}

static real cosine(const real *x, real number)
{
  (void)number;
  return real_cos(x[0]);
}

void ref_cosine(const exec_call *c)
{
  map(c, 1, cosine);
}

static real sine(const real *x, real number)
{
  (void)number;
  return real_sin(x[0]);
}

void ref_sine(const exec_call *c)
{
  map(c, 1, sine);
}

/* x / (1 + exp(-x)) */
static real silu(const real *x, real number)
{
  (void)number;
  return x[0] / (1 + real_exp(-x[0]));
}

void ref_silu_forward(const exec_call *c)
{
  map(c, 1, silu);
}

/* (gy s) (1 + x (1 - s)) with s = 1 / (1 + exp(-x)) */
static real silu_gradient(const real *x, real number)
{
  (void)number;
  real s = 1 / (1 + real_exp(-x[1]));
  return x[0] * s * (1 + x[1] * (1 - s));
}

/* reads gy, x */
void ref_silu_backward(const exec_call *c)
{
  map(c, 2, silu_gradient);
}

/* 1 / (1 + exp(-x)) */
static real sigmoid(const real *x, real number)
{
  (void)number;
  return 1 / (1 + real_exp(-x[0]));
}

void ref_sigmoid_forward(const exec_call *c)
{
  map(c, 1, sigmoid);
}

/* gy ((1 - y) y) */
static real sigmoid_gradient(const real *x, real number)
{
  (void)number;
  return x[0] * ((1 - x[1]) * x[1]);
}

/* reads gy, y */
void ref_sigmoid_backward(const exec_call *c)
{
  map(c, 2, sigmoid_gradient);
}

enum { SOFTPLUS_THRESHOLD = 20 }; /* torch.nn.functional.softplus */

/* log(1 + exp(x)) */
static real softplus(const real *x, real number)
{
  (void)number;
  return x[0] > SOFTPLUS_THRESHOLD ? x[0] : real_log(1 + real_exp(x[0]));
}

void ref_softplus_forward(const exec_call *c)
{
  map(c, 1, softplus);
}

/* gy (z / (z + 1)) with z = exp(x) */
static real softplus_gradient(const real *x, real number)
{
  (void)number;
  if (x[1] > SOFTPLUS_THRESHOLD) return x[0];
  real z = real_exp(x[1]);
  return x[0] * (z / (z + 1));
}

/* reads gy, x */
void ref_softplus_backward(const exec_call *c)
{
  map(c, 2, softplus_gradient);
}

static real exponential(const real *x, real number)
{
  (void)number;
  return real_exp(x[0]);
}

void ref_exponential(const exec_call *c)
{
  map(c, 1, exponential);
}
