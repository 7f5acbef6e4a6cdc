/*
 * Rotary embedding as the kernels of separate tensor operations: ref/kernels/rope_apart.c. What
 * they read and write are columns of heads' rows: views, for which map.cuh has the kernels.
 */
#include "cuda/kernels/fast/angles.cuh"
#include "cuda/kernels/fast/map.cuh"

enum { FACTOR_THREADS = 128, PRODUCT_SINE = 3 };

struct rope_columns {
  int64_t rows, dim, width; /* of x: heads of tokens, columns that turn, all columns */
  rope_pairs pairs;
};

static bool columns_of(const exec_call *c, const tensor &x, int pairs_scalar, rope_columns *r)
{
  r->rows = c->call->dims[0] * c->call->dims[1];
  r->dim = c->call->dims[2];
  r->pairs = (rope_pairs)c->call->scalars[pairs_scalar];
  r->width = r->rows > 0 ? elements_of(x) / r->rows : 0;
  return r->rows > 0 && r->dim > 0 && r->width >= r->dim;
}

/* Columns first, first + step, ... of rows: false if rows are not the tensor's last dimension. */
static bool some_columns(const tensor &t, int64_t rows, int64_t first, int64_t count, int64_t step,
                         tensor *part)
{
  int64_t width = elements_of(t) / rows;
  *part = t;
  if (is_contiguous(t)) {
    part->rank = 2;
    part->shape[0] = rows;
    part->shape[1] = width;
    part->strides[0] = width;
    part->strides[1] = 1;
  }
  int last = part->rank - 1;
  if (last < 0 || part->shape[last] != width) return false;
  part->data = (char *)t.data + first * part->strides[last] * size_of(t);
  part->shape[last] = count;
  part->strides[last] *= step;
  return true;
}

/* The first (0) or second (1) columns of the pairs, in x or among those that turn alone. */
static bool pair_columns(const rope_columns *r, const tensor &t, bool alone, int which,
                         tensor *part)
{
  bool halves = r->pairs == ROPE_PAIRS_HALVES || (alone && r->pairs != ROPE_PAIRS_NEIGHBOURS);
  int64_t first = !alone && r->pairs == ROPE_PAIRS_LAST_NEIGHBOURS ? r->width - r->dim : 0;
  int64_t half = r->dim / 2;
  return some_columns(t, r->rows, first + which * (halves ? half : 1), half, halves ? 1 : 2, part);
}

/* ---- moves ----------------------------------------------------------------------------------- */

struct same_value {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = x[0];
  }
};

struct negative {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = -x[0];
  }
};

/* Up to two maps of one operand each. */
struct moves {
  tensor from[2], to[2];
  int count;
};

static bool moves_suit(const moves &m)
{
  for (int i = 0; i < m.count; i++)
    if (!(map_suits<1, 1>(&m.from[i], &m.to[i]))) return false;
  return true;
}

template <class F> static void move_all(cuda_call *c, const moves &m, F f)
{
  for (int i = 0; i < m.count; i++)
    map<1, 1>(c, &m.from[i], &m.to[i], f);
}

/* reads x, writes the second columns negated. */
static bool negated_of(const exec_call *c, moves *m)
{
  rope_columns r;
  m->count = 1;
  m->to[0] = c->writes[0];
  return columns_of(c, c->reads[0], 0, &r) && pair_columns(&r, c->reads[0], false, 1, &m->from[0]);
}

/* reads x, those; writes them and the first columns as pairs. */
static bool rotated_of(const exec_call *c, moves *m)
{
  rope_columns r;
  m->count = 2;
  m->from[0] = c->reads[1];
  return columns_of(c, c->reads[0], 0, &r) && pair_columns(&r, c->writes[0], true, 0, &m->to[0]) &&
         pair_columns(&r, c->reads[0], false, 0, &m->from[1]) &&
         pair_columns(&r, c->writes[0], true, 1, &m->to[1]);
}

/* reads the columns that turned, x; writes rows of both. */
static bool joined_of(const exec_call *c, moves *m)
{
  rope_columns r;
  if (!columns_of(c, c->reads[1], 0, &r)) return false;
  bool last = r.pairs == ROPE_PAIRS_LAST_NEIGHBOURS;
  int64_t others = r.width - r.dim, turned = last ? others : 0, kept = last ? 0 : r.dim;
  m->count = others > 0 ? 2 : 1;
  m->from[0] = c->reads[0];
  return some_columns(c->writes[0], r.rows, turned, r.dim, 1, &m->to[0]) &&
         (others == 0 || (some_columns(c->reads[1], r.rows, kept, others, 1, &m->from[1]) &&
                          some_columns(c->writes[0], r.rows, kept, others, 1, &m->to[1])));
}

#define MOVES_ROW(name, operands, function)                                                        \
  KERNEL_SUITS(name)                                                                               \
  {                                                                                                \
    moves m;                                                                                       \
    return operands(c, &m) && moves_suit(m);                                                       \
  }                                                                                                \
  KERNEL_LAUNCH(name)                                                                              \
  {                                                                                                \
    moves m;                                                                                       \
    if (operands(c->of, &m)) move_all(c, m, function{});                                           \
  }

MOVES_ROW(rope_negated_half, negated_of, negative)
MOVES_ROW(rope_rotated_half, rotated_of, same_value)
MOVES_ROW(rope_join, joined_of, same_value)

/* ---- products -------------------------------------------------------------------------------- */

struct product {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = x[0] * x[1];
  }
};

/* Cosines or sines [positions, dim] as backward will find them, from pairs of both. */
__global__ void __launch_bounds__(FACTOR_THREADS)
    factors_kernel(const float2 *table, layout to, int64_t count, int half, int apart, bool sine)
{
  int64_t at = (int64_t)blockIdx.x * FACTOR_THREADS + threadIdx.x;
  if (at >= count) return;
  float value = sine ? table[at].y : table[at].x;
  uint32_t first = (uint32_t)(at / half * 2 * half + at % half * apart);
  store_one(to, place_of(to, first), value);
  store_one(to, place_of(to, first + (apart == 1 ? (uint32_t)half : 1)), value);
}

/* The factors of the rows of x, as often as there are sequences and heads. */
static tensor factors_of(const rotation &turns, const tensor &kept)
{
  tensor t = kept;
  int64_t shape[4] = { turns.positions, turns.batch, turns.heads, turns.dim };
  int64_t strides[4] = { turns.dim, 0, 0, 1 };
  t.rank = 4;
  for (int d = 0; d < 4; d++) {
    t.shape[d] = shape[d];
    t.strides[d] = strides[d];
  }
  return t;
}

struct products {
  rotation turns;
  rope_columns r;
  layout kept;
  tensor in[2][2], to[2];
  int count;
};

/* reads x, writes its columns that turn times their factors, and those. */
static bool products_of(const exec_call *c, products *p)
{
  const tensor &x = c->reads[0], &y = c->writes[0], &kept = c->writes[1];
  if (!fast_rotation_of(c, &p->turns) || !columns_of(c, x, 2, &p->r) || !is_number(kept) ||
      !is_contiguous(kept) || elements_of(kept) != p->turns.positions * p->turns.dim ||
      !layout_of(kept, 1, 1, &p->kept))
    return false;
  tensor factors = factors_of(p->turns, kept);
  if (p->r.pairs != ROPE_PAIRS_LAST_NEIGHBOURS) {
    p->count = 1;
    p->in[0][1] = factors;
    p->to[0] = y;
    return some_columns(x, p->r.rows, 0, p->r.dim, 1, &p->in[0][0]);
  }
  p->count = 2;
  for (int k = 0; k < 2; k++)
    if (!pair_columns(&p->r, x, false, k, &p->in[k][0]) ||
        !pair_columns(&p->r, y, true, k, &p->to[k]))
      return false;
  for (int k = 0; k < 2; k++) {
    p->in[k][1] = factors;
    p->in[k][1].shape[3] = p->r.dim / 2;
    p->in[k][1].data = (char *)kept.data + k * (p->r.dim / 2) * size_of(kept);
  }
  return true;
}

KERNEL_SUITS(rope_product)
{
  products p;
  bool suits = products_of(c, &p);
  for (int k = 0; suits && k < p.count; k++)
    suits = map_suits<2, 1>(p.in[k], &p.to[k]);
  return suits;
}

KERNEL_SCRATCH(rope_product)
{
  rotation turns;
  return fast_rotation_of(c, &turns) ? fast_angles_bytes(&turns) : 0;
}

KERNEL_LAUNCH(rope_product)
{
  products p;
  if (!products_of(c->of, &p)) return;
  int64_t half = p.turns.dim / 2, count = p.turns.positions * half;
  fast_angles(c, &p.turns);
  factors_kernel<<<blocks_of(count, FACTOR_THREADS), FACTOR_THREADS, 0, stream_of(c)>>>(
      (const float2 *)c->scratch, p.kept, count, (int)half,
      p.r.pairs == ROPE_PAIRS_NEIGHBOURS ? 2 : 1, c->of->call->scalars[PRODUCT_SINE] != 0);
  launched(c);
  for (int k = 0; k < p.count; k++)
    map<2, 1>(c, p.in[k], &p.to[k], product{});
}
