/*
 * Activations of experts, and rows times a factor for each row (the token's probability). Constant
 * factors have no gradient, and no operand for one.
 *
 * weighted_activation_forward: reads x [rows, 2 f], p; writes act(x left) (x right) p, products
 *   from left to right. Backward: reads g, x, p; writes gx [, gp: sums of g act(x left) (x right)].
 *   Ungated: x is [rows, f], and 1 is in the place of the right half.
 * gate_*, up_*: the halves alone; backward: reads g [, x], writes the gradient of both halves.
 * weight_rows_forward: reads x, p; writes x p, and perhaps the same in a wider type.
 *   Backward: reads g, x, p; writes gx, and gp: sums of g x.
 * row_dot: reads a, b; writes [scratch,] [those sums].
 *
 * Sums go by ascending column.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/activation.h"
#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

enum { ROWS, WIDTH };
enum { FUNCTION, UNGATED };

static activation_function function_of(const exec_call *c)
{
  return (activation_function)c->call->scalars[FUNCTION];
}

/* Elements of x for each of the result: two, or one if the activation has no gate. */
static int64_t halves_of(const exec_call *c)
{
  return c->call->scalars[UNGATED] != 0 ? 1 : 2;
}

void ref_weighted_activation_forward(const exec_call *c)
{
  int64_t f = exec_dim(c, WIDTH), rows = exec_elements(&c->writes[0]) / f, width = halves_of(c) * f;
  real *x = ref_reals(width);
  assert(REF_READS(c, rows * width, rows) && REF_WRITES(c, rows * f));
  for (int64_t i = 0; i < rows; i++) {
    real p = ref_load(&c->reads[1], i);
    ref_load_row(&c->reads[0], i * width, width, x);
    for (int64_t j = 0; j < f; j++)
      x[j] = ref_activation_of(function_of(c), x[j]) * (width > f ? x[f + j] : 1) * p;
    ref_store_row(&c->writes[0], i * f, f, x);
  }
  free(x);
}

/* Turns the row x into its gradient; returns that of p. */
static real weighted_row(activation_function function, bool gated, real *x, const real *g, real p,
                         int64_t f)
{
  real gp = 0;
  for (int64_t j = 0; j < f; j++) {
    real act = ref_activation_of(function, x[j]), slope = ref_activation_slope(function, x[j]);
    real weighted = g[j] * p, other = gated ? x[f + j] : 1;
    gp += g[j] * (act * other);
    x[j] = weighted * other * slope;
    if (gated) x[f + j] = weighted * act;
  }
  return gp;
}

void ref_weighted_activation_backward(const exec_call *c)
{
  int64_t f = exec_dim(c, WIDTH), rows = exec_elements(&c->reads[0]) / f, width = halves_of(c) * f;
  real *x = ref_reals(width), *g = ref_reals(f);
  assert(REF_READS(c, rows * f, rows * width, rows));
  assert(exec_elements(&c->writes[0]) == rows * width);
  for (int64_t i = 0; i < rows; i++) {
    ref_load_row(&c->reads[0], i * f, f, g);
    ref_load_row(&c->reads[1], i * width, width, x);
    real gp = weighted_row(function_of(c), width > f, x, g, ref_load(&c->reads[2], i), f);
    if (c->write_count > 1) ref_store(&c->writes[1], i, gp);
    ref_store_row(&c->writes[0], i * width, width, x);
  }
  free(x);
  free(g);
}

/* ---- halves ---------------------------------------------------------------------------------- */

void ref_gate_forward(const exec_call *c)
{
  int64_t f = exec_dim(c, WIDTH), elements = exec_elements(&c->writes[0]);
  assert(REF_READS(c, 2 * elements) && elements % f == 0);
  for (int64_t i = 0; i < elements; i++) {
    real x = ref_load(&c->reads[0], i / f * 2 * f + i % f);
    ref_store(&c->writes[0], i, ref_activation_of(function_of(c), x));
  }
}

void ref_gate_backward(const exec_call *c)
{
  int64_t f = exec_dim(c, WIDTH), elements = exec_elements(&c->reads[0]);
  assert(REF_READS(c, elements, 2 * elements) && REF_WRITES(c, 2 * elements));
  for (int64_t i = 0; i < elements; i++) {
    int64_t left = i / f * 2 * f + i % f;
    real slope = ref_activation_slope(function_of(c), ref_load(&c->reads[1], left));
    ref_store(&c->writes[0], left, ref_load(&c->reads[0], i) * slope);
    ref_store(&c->writes[0], left + f, 0);
  }
}

void ref_up_forward(const exec_call *c)
{
  int64_t f = exec_dim(c, WIDTH), rows = exec_elements(&c->writes[0]) / f;
  assert(REF_READS(c, rows * 2 * f) && REF_WRITES(c, rows * f));
  for (int64_t i = 0; i < rows; i++)
    ref_copy_row(&c->reads[0], (2 * i + 1) * f, &c->writes[0], i * f, f);
}

void ref_up_backward(const exec_call *c)
{
  int64_t f = exec_dim(c, WIDTH), rows = exec_elements(&c->reads[0]) / f;
  assert(REF_READS(c, rows * f) && REF_WRITES(c, rows * 2 * f));
  for (int64_t i = 0; i < rows; i++) {
    ref_fill_row(&c->writes[0], 2 * i * f, f, 0);
    ref_copy_row(&c->reads[0], i * f, &c->writes[0], (2 * i + 1) * f, f);
  }
}

void ref_multiply_backward(const exec_call *c)
{
  int64_t elements = exec_elements(&c->reads[0]);
  assert(REF_READS(c, elements, elements, elements) && REF_WRITES(c, elements, elements));
  for (int64_t i = 0; i < elements; i++) {
    real g = ref_load(&c->reads[0], i), a = ref_load(&c->reads[1], i),
         b = ref_load(&c->reads[2], i);
    ref_store(&c->writes[0], i, g * b);
    ref_store(&c->writes[1], i, g * a);
  }
}

void ref_relu_forward(const exec_call *c)
{
  assert(REF_READS(c, exec_elements(&c->writes[0])));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++) {
    real x = ref_load(&c->reads[0], i);
    ref_store(&c->writes[0], i, x > 0 ? x : 0);
  }
}

void ref_relu_backward(const exec_call *c)
{
  assert(REF_READS(c, exec_elements(&c->writes[0]), exec_elements(&c->writes[0])));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i, ref_load(&c->reads[1], i) > 0 ? ref_load(&c->reads[0], i) : 0);
}

void ref_square_backward(const exec_call *c)
{
  assert(REF_READS(c, exec_elements(&c->writes[0]), exec_elements(&c->writes[0])));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store(&c->writes[0], i, ref_load(&c->reads[0], i) * (2 * ref_load(&c->reads[1], i)));
}

/* ---- rows times a number --------------------------------------------------------------------- */

void ref_weight_rows_forward(const exec_call *c)
{
  int64_t width = exec_dim(c, WIDTH), rows = exec_elements(&c->writes[0]) / width;
  real *x = ref_reals(width);
  assert(REF_READS(c, rows * width, rows));
  for (int64_t i = 0; i < rows; i++) {
    real p = ref_load(&c->reads[1], i);
    ref_load_row(&c->reads[0], i * width, width, x);
    for (int64_t j = 0; j < width; j++)
      x[j] *= p;
    for (uint32_t w = 0; w < c->write_count; w++)
      ref_store_row(&c->writes[w], i * width, width, x);
  }
  free(x);
}

static void dot_rows(const exec_tensor *a, const exec_tensor *b, int64_t width,
                     const exec_tensor *to)
{
  real *x = ref_reals(width), *y = ref_reals(width);
  assert(exec_elements(a) == exec_elements(to) * width);
  assert(exec_elements(b) == exec_elements(to) * width);
  for (int64_t i = 0; i < exec_elements(to); i++) {
    real sum = 0;
    ref_load_row(a, i * width, width, x);
    ref_load_row(b, i * width, width, y);
    for (int64_t j = 0; j < width; j++)
      sum += x[j] * y[j];
    ref_store(to, i, sum);
  }
  free(x);
  free(y);
}

void ref_weight_rows_backward(const exec_call *c)
{
  exec_call rows = *c;
  assert(c->read_count == 3 && c->write_count == 2);
  rows.reads = (exec_tensor[]){ c->reads[0], c->reads[2] };
  rows.read_count = 2;
  rows.write_count = 1;
  dot_rows(&c->reads[0], &c->reads[1], exec_dim(c, WIDTH), &c->writes[1]);
  ref_weight_rows_forward(&rows);
}

void ref_row_dot(const exec_call *c)
{
  const exec_tensor *to = &c->writes[c->write_count - 1];
  if (to->type == DTYPE_BYTE) return;
  assert(exec_elements(to) == exec_dim(c, ROWS));
  dot_rows(&c->reads[0], &c->reads[1], exec_dim(c, WIDTH), to);
}
