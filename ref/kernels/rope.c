/*
 * Rotary embedding in one kernel. A pair (a, b) of a head's columns becomes (a cos - b sin, b cos +
 * a sin): two products, each rounded, then their sum. The gradient is rotated back by the same
 * angles.
 */
#include "ref/kernels/rope.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/kernels/exact_math.h"
#include "ref/kernels/functions.h"
#include "ref/kernels/positions.h"
#include "ref/kernels/storage.h"

rope_call rope_of(const exec_call *c)
{
  const double *scalars = c->call->scalars;
  rope_call r = { .tokens = exec_dim(c, 0),
                  .heads = exec_dim(c, 1),
                  .dim = exec_dim(c, 2),
                  .theta = scalars[0],
                  .batch = (int64_t)scalars[1],
                  .pairs = (rope_pairs)scalars[2] };
  assert(r.batch > 0 && r.tokens % r.batch == 0 && r.dim % 2 == 0);
  return r;
}

int64_t rope_width(const rope_call *r, const exec_tensor *operand)
{
  int64_t width = exec_elements(operand) / (r->tokens * r->heads);
  assert(width >= r->dim && width * r->tokens * r->heads == exec_elements(operand));
  return width;
}

rope_table rope_angles(const exec_call *c, const rope_call *r)
{
  int64_t positions = r->tokens / r->batch, half = r->dim / 2;
  exec_position part = ref_sequence_part(c);
  rope_table t = { .cosine = ref_reals(2 * positions * half) };
  t.sine = t.cosine + positions * half;
  for (int64_t i = 0; i < half; i++) {
    double frequency = 1 / exact_pow(r->theta, (double)(2 * i) / (double)r->dim);
    for (int64_t p = 0; p < positions; p++) {
      double angle = (double)ref_position_of(part, positions, p) * frequency;
      t.cosine[p * half + i] = (real)exact_cos(angle);
      t.sine[p * half + i] = (real)exact_sin(angle);
    }
  }
  return t;
}

static rope_columns halves(const rope_call *r, int64_t offset, int64_t i)
{
  return (rope_columns){ offset + i, offset + r->dim / 2 + i };
}

static rope_columns neighbours(int64_t offset, int64_t i)
{
  return (rope_columns){ offset + 2 * i, offset + 2 * i + 1 };
}

rope_columns rope_before(const rope_call *r, int64_t width, int64_t i)
{
  if (r->pairs == ROPE_PAIRS_HALVES) return halves(r, 0, i);
  return neighbours(r->pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? width - r->dim : 0, i);
}

rope_columns rope_after(const rope_call *r, int64_t width, int64_t i)
{
  if (r->pairs == ROPE_PAIRS_NEIGHBOURS) return neighbours(0, i);
  return halves(r, r->pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? width - r->dim : 0, i);
}

rope_columns rope_alone(const rope_call *r, int64_t i)
{
  return r->pairs == ROPE_PAIRS_NEIGHBOURS ? neighbours(0, i) : halves(r, 0, i);
}

/* ---- the rotation --------------------------------------------------------------------------- */

static void turn(const real *from, rope_columns at, real *to, rope_columns into, real cosine,
                 real sine)
{
  real a = from[at.first], b = from[at.second];
  to[into.first] = a * cosine - b * sine;
  to[into.second] = b * cosine + a * sine;
}

void ref_rope_forward(const exec_call *c)
{
  const rope_call r = rope_of(c);
  const exec_tensor *x = &c->reads[0], *y = &c->writes[0];
  int64_t width = rope_width(&r, x), half = r.dim / 2;
  rope_table t = rope_angles(c, &r);
  real *from = ref_reals(2 * width), *to = from + width;
  assert(REF_WRITES(c, exec_elements(x)));
  for (int64_t row = 0; row < r.tokens * r.heads; row++) {
    int64_t at = row / r.heads / r.batch * half;
    ref_load_row(x, row * width, width, from);
    memcpy(to, from, (size_t)width * sizeof *to);
    for (int64_t i = 0; i < half; i++)
      turn(from, rope_before(&r, width, i), to, rope_after(&r, width, i), t.cosine[at + i],
           t.sine[at + i]);
    ref_store_row(y, row * width, width, to);
  }
  free(from);
  free(t.cosine);
}

/* Cosines and sines that forward has kept, [positions, dim], in the type of the activations. */
static rope_table kept_table(const exec_call *c, const rope_call *r)
{
  int64_t positions = r->tokens / r->batch, half = r->dim / 2;
  rope_table t = { .cosine = ref_reals(2 * positions * half) };
  assert(exec_elements(&c->reads[1]) == positions * r->dim);
  assert(exec_elements(&c->reads[2]) == positions * r->dim);
  t.sine = t.cosine + positions * half;
  for (int64_t p = 0; p < positions; p++)
    for (int64_t i = 0; i < half; i++) {
      int64_t column = p * r->dim + rope_alone(r, i).first;
      t.cosine[p * half + i] = ref_load(&c->reads[1], column);
      t.sine[p * half + i] = ref_load(&c->reads[2], column);
    }
  return t;
}

void ref_rope_backward(const exec_call *c)
{
  const rope_call r = rope_of(c);
  const exec_tensor *gy = &c->reads[0], *gx = &c->writes[0];
  int64_t width = rope_width(&r, gy), half = r.dim / 2;
  rope_table t = c->read_count > 1 ? kept_table(c, &r) : rope_angles(c, &r);
  real *from = ref_reals(2 * width), *to = from + width;
  assert(c->read_count == 1 || c->read_count == 3);
  assert(REF_WRITES(c, exec_elements(gy)));
  for (int64_t row = 0; row < r.tokens * r.heads; row++) {
    int64_t at = row / r.heads / r.batch * half;
    ref_load_row(gy, row * width, width, from);
    memcpy(to, from, (size_t)width * sizeof *to);
    for (int64_t i = 0; i < half; i++)
      turn(from, rope_after(&r, width, i), to, rope_before(&r, width, i), t.cosine[at + i],
           -t.sine[at + i]);
    ref_store_row(gx, row * width, width, to);
  }
  free(from);
  free(t.cosine);
}
