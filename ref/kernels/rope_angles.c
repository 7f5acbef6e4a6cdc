#include "ref/kernels/rope.h"

#include <assert.h>

#include "ref/kernels/exact_math.h"
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
