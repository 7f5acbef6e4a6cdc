/* Rotary embedding on the device: the twin of ref/kernels/rope.h, whose sizes it takes. */
#ifndef OFFSIM_CUDA_KERNELS_ROPE_CUH
#define OFFSIM_CUDA_KERNELS_ROPE_CUH

extern "C" {
#include "ref/kernels/rope.h"
}
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"
#include "cuda/kernels/sequence_part.cuh"

DEVICE static inline rope_columns columns_at(int64_t first, int64_t second)
{
  rope_columns at = { first, second };
  return at;
}

/* Pair `i` in a head of `width` columns before and after the rotation, */
DEVICE static inline rope_columns before_turn(const rope_call &r, int64_t width, int64_t i)
{
  if (r.pairs == ROPE_PAIRS_HALVES) return columns_at(i, r.dim / 2 + i);
  int64_t offset = r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? width - r.dim : 0;
  return columns_at(offset + 2 * i, offset + 2 * i + 1);
}

DEVICE static inline rope_columns after_turn(const rope_call &r, int64_t width, int64_t i)
{
  if (r.pairs == ROPE_PAIRS_NEIGHBOURS) return columns_at(2 * i, 2 * i + 1);
  int64_t offset = r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? width - r.dim : 0;
  return columns_at(offset + i, offset + r.dim / 2 + i);
}

/* ... and among `dim` rotated columns alone. */
DEVICE static inline rope_columns turned_alone(const rope_call &r, int64_t i)
{
  return r.pairs == ROPE_PAIRS_NEIGHBOURS ? columns_at(2 * i, 2 * i + 1)
                                          : columns_at(i, r.dim / 2 + i);
}

/* Where pair `i` of a row's position is in tables of [positions, dim / 2]. */
DEVICE static inline int64_t angle_of(const rope_call &r, int64_t row, int64_t i)
{
  return row / r.heads / r.batch * (r.dim / 2) + i;
}

/* [positions, dim / 2] */
typedef struct angle_table {
  float *cosine, *sine;
} angle_table;

static inline angle_table take_angles(scratch_arena *a, int64_t positions, int64_t dim)
{
  angle_table t;
  t.cosine = take<float>(a, positions * (dim / 2));
  t.sine = take<float>(a, positions * (dim / 2));
  return t;
}

/* Of a call with the dims tokens, heads, dim and the scalars theta, batch. */
static inline int64_t angle_bytes(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_angles(&a, dim_of(c, 0) / (int64_t)c->call->scalars[1], dim_of(c, 2));
  return a.used;
}

static inline angle_table make_angles(cuda_call *c, rope_call r, scratch_arena *room)
{
  int64_t positions = r.tokens / r.batch, half = r.dim / 2;
  angle_table t = take_angles(room, positions, r.dim);
  exec_position part = sequence_part_of(c->of);
  for_each(
      c, positions * half, KERNEL_LAMBDA(int64_t n) {
        int64_t p = n / half, i = n % half;
        double frequency = 1 / exact_pow(r.theta, (double)(2 * i) / (double)r.dim);
        double angle = (double)position_of(part, positions, p) * frequency;
        t.cosine[n] = (float)exact_cos(angle);
        t.sine[n] = (float)exact_sin(angle);
      });
  return t;
}

#endif
