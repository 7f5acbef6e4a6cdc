/*
 * Keys and values of latent attention: ref/kernels/mla_key_value.c. What has no position is copied;
 * a thread turns 8 pairs of the part that all heads share, once for some heads.
 */
#include "cuda/kernels/fast/angles.cuh"
#include "cuda/kernels/fast/copy.cuh"

enum { MLA_THREADS = 256, HEADS_EACH = 8, SUM_GROUPS = 32 }; /* threads that share a sum */

struct mla_call {
  layout rotary, keys; /* tokens; heads of tokens */
  const float2 *table;
  divisor units, shares, heads, batch; /* threads of the same heads; of a token */
  uint32_t count;
  int32_t own, half;       /* columns */
  tensor key_from, key_to; /* columns without position */
  tensor value_from, value_to;
};

__global__ void __launch_bounds__(MLA_THREADS)
    mla_forward_kernel(const __grid_constant__ mla_call m)
{
  uint32_t i = blockIdx.x * MLA_THREADS + threadIdx.x;
  if (i >= m.count) return;
  uint32_t share = divided_by(i, m.units), token = divided_by(share, m.shares);
  int32_t pair = (int32_t)(i - share * m.units.by) * PAIRS;
  uint32_t head = (share - token * m.shares.by) * HEADS_EACH;
  pairs_at from = { place_of(m.rotary, token) + 2 * pair, 0, true };
  float a[PAIRS], b[PAIRS];
  load_pairs(m.rotary, from, a, b);
  turn(m.table + (int64_t)divided_by(token, m.batch) * m.half + pair, 1.0f, a, b);
#pragma unroll
  for (uint32_t k = 0; k < HEADS_EACH; k++) {
    if (head + k >= m.heads.by) break;
    int64_t to = place_of(m.keys, token * m.heads.by + head + k) + m.own + pair;
    store_pairs(m.keys, pairs_at{ to, to + m.half, false }, a, b);
  }
}

/* The shared part: a block for each token; thread (p, g) has the 8 pairs of number p of heads g,
 * g + SUM_GROUPS, ... */
__global__ void mla_shared_kernel(const __grid_constant__ mla_call m)
{
  extern __shared__ float sums[]; /* [2 PAIRS][threads] */
  uint32_t token = blockIdx.x;
  int32_t pair = (int32_t)threadIdx.x * PAIRS, heads = (int32_t)m.heads.by;
  float sum[2 * PAIRS] = {};
#pragma unroll 4
  for (int32_t head = (int32_t)threadIdx.y; head < heads; head += SUM_GROUPS) {
    int64_t from = place_of(m.keys, token * m.heads.by + (uint32_t)head) + m.own + pair;
    pairs_at at = { from, from + m.half, false };
    float a[2 * PAIRS];
    load_pairs(m.keys, at, a, a + PAIRS);
#pragma unroll
    for (int j = 0; j < 2 * PAIRS; j++)
      sum[j] += a[j];
  }
  int32_t across = (int32_t)blockDim.x, threads = across * SUM_GROUPS;
  float *own = sums + (int32_t)threadIdx.y * across + (int32_t)threadIdx.x;
#pragma unroll
  for (int j = 0; j < 2 * PAIRS; j++)
    own[j * threads] = sum[j];
  __syncthreads();
  for (int32_t step = SUM_GROUPS / 2; step > 0; step /= 2) {
    if ((int32_t)threadIdx.y < step)
#pragma unroll
      for (int j = 0; j < 2 * PAIRS; j++)
        own[j * threads] += own[j * threads + step * across];
    __syncthreads();
  }
  if (threadIdx.y > 0) return;
#pragma unroll
  for (int j = 0; j < 2 * PAIRS; j++)
    sum[j] = own[j * threads];
  /* Turning is linear: once for the sum. */
  turn(m.table + (int64_t)divided_by(token, m.batch) * m.half + pair, -1.0f, sum, sum + PAIRS);
  pairs_at to = { place_of(m.rotary, token) + 2 * pair, 0, true };
  store_pairs(m.rotary, to, sum, sum + PAIRS);
}

static bool mla_of(const exec_call *c, bool backward, rotation *r, mla_call *m)
{
  const tensor *kv = backward ? &c->writes[0] : &c->reads[0];
  const tensor *rotary = backward ? &c->writes[1] : &c->reads[1];
  const tensor *keys = backward ? &c->reads[0] : &c->writes[0];
  const tensor *values = backward ? &c->reads[1] : &c->writes[1];
  if (c->read_count != 2 || c->write_count != 2 || !fast_rotation_of(c, r)) return false;
  int64_t rows = r->tokens * r->heads, own = elements_of(*keys) / rows - r->dim;
  int64_t value = elements_of(*values) / rows, units = r->dim / 2 / PAIRS;
  int64_t shares = blocks_of(r->heads, HEADS_EACH);
  if (own <= 0 || value <= 0 || !is_contiguous(*kv) || !is_contiguous(*keys) ||
      elements_of(*kv) != rows * (own + value) || units * SUM_GROUPS > 1024)
    return false;
  m->units = divisor_of((uint32_t)units);
  m->shares = divisor_of((uint32_t)shares);
  m->heads = divisor_of((uint32_t)r->heads);
  m->batch = divisor_of((uint32_t)r->batch);
  m->count = (uint32_t)(r->tokens * shares * units);
  m->own = (int32_t)own;
  m->half = (int32_t)(r->dim / 2);
  m->key_from = row_columns(*kv, rows, 0, own);
  m->key_to = row_columns(*keys, rows, 0, own);
  m->value_from = row_columns(*kv, rows, own, value);
  m->value_to = *values;
  if (backward) {
    tensor swap = m->key_from;
    m->key_from = m->key_to;
    m->key_to = swap;
    swap = m->value_from;
    m->value_from = m->value_to;
    m->value_to = swap;
  }
  return fast_copy_pair_suits(&m->key_from, &m->key_to) &&
         fast_copy_pair_suits(&m->value_from, &m->value_to) &&
         rows_suit(*keys, rows, own + r->dim, PAIRS, &m->keys) &&
         rows_suit(*rotary, r->tokens, r->dim, PAIRS, &m->rotary);
}

static int64_t scratch(const exec_call *c)
{
  rotation r;
  return fast_rotation_of(c, &r) ? fast_angles_bytes(&r) : 0;
}

KERNEL_SUITS(mla_key_value_forward)
{
  rotation r;
  mla_call m;
  return mla_of(c, false, &r, &m);
}

KERNEL_SCRATCH(mla_key_value_forward)
{
  return scratch(c);
}

KERNEL_LAUNCH(mla_key_value_forward)
{
  rotation r;
  mla_call m;
  if (!mla_of(c->of, false, &r, &m)) return;
  fast_angles(c, &r);
  m.table = (const float2 *)c->scratch;
  mla_forward_kernel<<<blocks_of(m.count, MLA_THREADS), MLA_THREADS, 0, stream_of(c)>>>(m);
  launched(c);
  fast_copy_pair(c, &m.key_from, &m.key_to);
  fast_copy_pair(c, &m.value_from, &m.value_to);
}

KERNEL_SUITS(mla_key_value_backward)
{
  rotation r;
  mla_call m;
  return mla_of(c, true, &r, &m);
}

KERNEL_SCRATCH(mla_key_value_backward)
{
  return scratch(c);
}

KERNEL_LAUNCH(mla_key_value_backward)
{
  rotation r;
  mla_call m;
  if (!mla_of(c->of, true, &r, &m)) return;
  dim3 threads((unsigned)(r.dim / 2 / PAIRS), SUM_GROUPS);
  size_t shared = SUM_GROUPS * (size_t)r.dim * sizeof(float);
  fast_angles(c, &r);
  m.table = (const float2 *)c->scratch;
  mla_shared_kernel<<<(unsigned)r.tokens, threads, shared, stream_of(c)>>>(m);
  launched(c);
  fast_copy_pair(c, &m.key_from, &m.key_to);
  fast_copy_pair(c, &m.value_from, &m.value_to);
}
