/*
 * Rotary embedding: ref/kernels/rope.c. A thread turns 8 pairs of some heads of a token, which
 * share their angles; the other columns of a head are copied.
 */
#include "cuda/kernels/fast/angles.cuh"
#include "cuda/kernels/fast/copy.cuh"

enum { ROPE_THREADS = 256, HEADS_EACH = 1, WARP = 32 };

struct rope_call {
  layout x, y; /* rows: heads of tokens */
  const float2 *table;
  divisor units, shares, batch; /* threads of the same heads; of a token, HEADS_EACH heads each */
  uint32_t count, heads;
  int32_t half;          /* columns */
  int32_t before, after; /* columns where those that turn begin */
  bool before_neighbours, after_neighbours;
  float sign;
};

static __device__ inline pairs_at pairs_of(int64_t row, int32_t column, int32_t half, int32_t unit,
                                           bool neighbours)
{
  pairs_at at = { row + column + unit * (neighbours ? 2 * PAIRS : PAIRS), 0, neighbours };
  at.second = at.first + half;
  return at;
}

__global__ void __launch_bounds__(ROPE_THREADS) rope_kernel(rope_call r)
{
  uint32_t i = blockIdx.x * ROPE_THREADS + threadIdx.x;
  uint32_t live = __ballot_sync(UINT32_MAX, i < r.count);
  if (i >= r.count) return;
  uint32_t share = divided_by(i, r.units), token = divided_by(share, r.shares);
  int32_t unit = (int32_t)(i - share * r.units.by);
  uint32_t head = (share - token * r.shares.by) * HEADS_EACH;
  const float2 *table = r.table + (int64_t)divided_by(token, r.batch) * r.half + unit * PAIRS;
  float a[HEADS_EACH][PAIRS], b[HEADS_EACH][PAIRS];
#pragma unroll
  for (uint32_t k = 0; k < HEADS_EACH; k++) {
    if (head + k >= r.heads) break;
    int64_t from = place_of(r.x, token * r.heads + head + k);
    load_pairs(r.x, pairs_of(from, r.before, r.half, unit, r.before_neighbours), a[k], b[k]);
  }
  __syncwarp(live); /* in place, one thread writes what another of its warp has read */
#pragma unroll
  for (uint32_t k = 0; k < HEADS_EACH; k++) {
    if (head + k >= r.heads) break;
    int64_t to = place_of(r.y, token * r.heads + head + k);
    turn(table, r.sign, a[k], b[k]);
    store_pairs(r.y, pairs_of(to, r.after, r.half, unit, r.after_neighbours), a[k], b[k]);
  }
}

static bool is_apart(const tensor &x, const tensor &y)
{
  return x.data != y.data;
}

/* The columns that do not turn: of x, of y. */
struct rope_others {
  int64_t count;
  tensor from, to;
};

static bool others_of(const exec_call *c, const rotation &turns, bool last, rope_others *o)
{
  const tensor &x = c->reads[0], &y = c->writes[0];
  int64_t rows = turns.tokens * turns.heads, first = last ? 0 : turns.dim;
  o->count = elements_of(x) / rows - turns.dim;
  if (o->count == 0) return true;
  if (!is_contiguous(x) || !is_contiguous(y)) return false;
  o->from = row_columns(x, rows, first, o->count);
  o->to = row_columns(y, rows, first, o->count);
  return fast_copy_pair_suits(&o->from, &o->to);
}

static bool rope_of(const exec_call *c, bool backward, rotation *turns, rope_call *r,
                    rope_others *others)
{
  const tensor *x = &c->reads[0], *y = &c->writes[0];
  if (!fast_rotation_of(c, turns)) return false;
  rope_pairs pairs = (rope_pairs)c->call->scalars[2];
  int64_t rows = turns->tokens * turns->heads, width = elements_of(*x) / rows;
  int64_t units = turns->dim / 2 / PAIRS, shares = blocks_of(turns->heads, HEADS_EACH);
  bool last = pairs == ROPE_PAIRS_LAST_NEIGHBOURS;
  bool in_warp = units > 0 && WARP % units == 0; /* what a row needs is read before it is written */
  if (width < turns->dim || rows * units >= INT32_MAX || (last && !is_apart(*x, *y) && !in_warp) ||
      !others_of(c, *turns, last, others))
    return false;
  r->units = divisor_of((uint32_t)units);
  r->shares = divisor_of((uint32_t)shares);
  r->batch = divisor_of((uint32_t)turns->batch);
  r->count = (uint32_t)(turns->tokens * shares * units);
  r->heads = (uint32_t)turns->heads;
  r->half = (int32_t)(turns->dim / 2);
  r->before = r->after = last ? (int32_t)others->count : 0;
  r->before_neighbours = pairs == ROPE_PAIRS_NEIGHBOURS || (last && !backward);
  r->after_neighbours = pairs == ROPE_PAIRS_NEIGHBOURS || (last && backward);
  r->sign = backward ? -1.0f : 1.0f;
  return rows_suit(*x, rows, width, PAIRS, &r->x) && rows_suit(*y, rows, width, PAIRS, &r->y);
}

static bool kept_suits(const exec_call *c, const rotation *turns)
{
  layout l;
  for (int k = 1; k <= 2 && c->read_count > 1; k++)
    if (c->read_count != 3 || !is_number(c->reads[k]) ||
        elements_of(c->reads[k]) != turns->positions * turns->dim ||
        !layout_of(c->reads[k], 1, 1, &l))
      return false;
  return true;
}

static bool suits(const exec_call *c, bool backward)
{
  rotation turns;
  rope_call r;
  rope_others others;
  return rope_of(c, backward, &turns, &r, &others) && kept_suits(c, &turns);
}

static int64_t scratch(const exec_call *c)
{
  rotation turns;
  return fast_rotation_of(c, &turns) ? fast_angles_bytes(&turns) : 0;
}

static void rope(cuda_call *c, bool backward)
{
  rotation turns;
  rope_call r;
  rope_others others;
  if (!rope_of(c->of, backward, &turns, &r, &others)) return;
  if (c->of->read_count > 1)
    fast_kept_angles(c, &turns, &c->of->reads[1], &c->of->reads[2],
                     (rope_pairs)c->of->call->scalars[2] == ROPE_PAIRS_NEIGHBOURS ? 2 : 1);
  else
    fast_angles(c, &turns);
  r.table = (const float2 *)c->scratch;
  rope_kernel<<<blocks_of(r.count, ROPE_THREADS), ROPE_THREADS, 0, stream_of(c)>>>(r);
  launched(c);
  if (others.count > 0 && is_apart(c->of->reads[0], c->of->writes[0]))
    fast_copy_pair(c, &others.from, &others.to);
}

KERNEL_SUITS(rope_forward)
{
  return suits(c, false);
}

KERNEL_SCRATCH(rope_forward)
{
  return scratch(c);
}

KERNEL_LAUNCH(rope_forward)
{
  rope(c, false);
}

KERNEL_SUITS(rope_backward)
{
  return suits(c, true);
}

KERNEL_SCRATCH(rope_backward)
{
  return scratch(c);
}

KERNEL_LAUNCH(rope_backward)
{
  rope(c, true);
}
