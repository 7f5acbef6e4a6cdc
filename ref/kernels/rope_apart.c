/*
 * Rotary embedding as separate tensor operations: the rotated columns times their cosines; (-b, a)
 * of their pairs (a, b), times their sines; and the sum of both, with the other columns. Cosines
 * and sines are rounded to the type of the activations before they multiply.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/rope.h"
#include "ref/kernels/storage.h"

/* Factors [positions, dim] as backward will read them: rounded. */
static real *keep_factors(const exec_call *c, const rope_call *r)
{
  int64_t positions = r->tokens / r->batch, half = r->dim / 2;
  const exec_tensor *kept = &c->writes[1];
  rope_table t = rope_angles(c, r);
  const real *values = ref_scalar(c, 3) != 0 ? t.sine : t.cosine;
  real *factors = ref_reals(positions * r->dim);
  assert(exec_elements(kept) == positions * r->dim);
  for (int64_t p = 0; p < positions; p++)
    for (int64_t i = 0; i < half; i++) {
      rope_columns at = rope_alone(r, i);
      factors[p * r->dim + at.first] = factors[p * r->dim + at.second] = values[p * half + i];
    }
  ref_store_row(kept, 0, positions * r->dim, factors);
  ref_load_row(kept, 0, positions * r->dim, factors);
  free(t.cosine);
  return factors;
}

void ref_rope_product(const exec_call *c)
{
  const rope_call r = rope_of(c);
  const exec_tensor *x = &c->reads[0], *y = &c->writes[0];
  int64_t width = rope_width(&r, x);
  real *factors = keep_factors(c, &r);
  real *from = ref_reals(width + r.dim), *to = from + width;
  assert(exec_elements(y) == r.tokens * r.heads * r.dim);
  for (int64_t row = 0; row < r.tokens * r.heads; row++) {
    const real *factor = factors + row / r.heads / r.batch * r.dim;
    ref_load_row(x, row * width, width, from);
    for (int64_t i = 0; i < r.dim / 2; i++) {
      rope_columns at = rope_before(&r, width, i), into = rope_alone(&r, i);
      to[into.first] = from[at.first] * factor[into.first];
      to[into.second] = from[at.second] * factor[into.second];
    }
    ref_store_row(y, row * r.dim, r.dim, to);
  }
  free(from);
  free(factors);
}

/* Dims and the scalar of the rows that need no angles. */
static rope_call columns_of(const exec_call *c)
{
  return (rope_call){ .tokens = exec_dim(c, 0),
                      .heads = exec_dim(c, 1),
                      .dim = exec_dim(c, 2),
                      .pairs = (rope_pairs)c->call->scalars[0] };
}

void ref_rope_negated_half(const exec_call *c)
{
  const rope_call r = columns_of(c);
  const exec_tensor *x = &c->reads[0];
  int64_t width = rope_width(&r, x), half = r.dim / 2;
  assert(REF_WRITES(c, r.tokens * r.heads * half));
  for (int64_t row = 0; row < r.tokens * r.heads; row++)
    for (int64_t i = 0; i < half; i++)
      ref_store(&c->writes[0], row * half + i,
                -ref_load(x, row * width + rope_before(&r, width, i).second));
}

void ref_rope_rotated_half(const exec_call *c)
{
  const rope_call r = columns_of(c);
  const exec_tensor *x = &c->reads[0], *negated = &c->reads[1], *y = &c->writes[0];
  int64_t width = rope_width(&r, x), half = r.dim / 2;
  assert(exec_elements(negated) == r.tokens * r.heads * half);
  assert(REF_WRITES(c, r.tokens * r.heads * r.dim));
  for (int64_t row = 0; row < r.tokens * r.heads; row++)
    for (int64_t i = 0; i < half; i++) {
      rope_columns into = rope_alone(&r, i);
      ref_copy(negated, row * half + i, y, row * r.dim + into.first);
      ref_copy(x, row * width + rope_before(&r, width, i).first, y, row * r.dim + into.second);
    }
}

void ref_rope_join(const exec_call *c)
{
  const rope_call r = columns_of(c);
  const exec_tensor *rotated = &c->reads[0], *x = &c->reads[1], *y = &c->writes[0];
  int64_t width = rope_width(&r, x);
  int64_t offset = r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? width - r.dim : 0;
  assert(REF_READS(c, r.tokens * r.heads * r.dim, exec_elements(y)));
  for (int64_t row = 0; row < r.tokens * r.heads; row++)
    for (int64_t i = 0; i < width; i++) {
      bool turned = i >= offset && i < offset + r.dim;
      ref_copy(turned ? rotated : x, turned ? row * r.dim + i - offset : row * width + i, y,
               row * width + i);
    }
}
