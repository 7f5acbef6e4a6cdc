/*
 * Rotary embedding in one kernel. A pair (a, b) of a head's columns becomes (a cos - b sin, b cos +
 * a sin): two products, each rounded, then their sum. The gradient is turned back by the same
 * angles.
 */
#include "ref/kernels/rope.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/storage.h"

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
