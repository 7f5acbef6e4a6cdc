/*
 * Dropout alone, and with a bias before and a residual after it: ref/kernels/dropout.c, whose masks
 * are functions of the element's number, so that they are the same here.
 */
#include "cuda/kernels/fast/layout.cuh"

extern "C" {
#include "ref/kernels/dropout.h"
}

enum { DROPOUT_THREADS = 256 };

struct dropout {
  layout x, y, mask, residual, bias;
  divisor width; /* vectors of the bias */
  uint64_t key, threshold;
  uint64_t part, ranks, rank; /* of each part of `part` elements the ranks have one; 0: all */
  uint32_t units;
  float factor;
  bool drops, draws; /* by the mask; which is made here */
  bool adds, biased;
};

/* ref/kernels/dropout.c: the output function of splitmix64. */
static __device__ inline uint64_t mixed(uint64_t z)
{
  z += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

template <int V>
static __device__ inline vector<uint8_t, V> mask_of(const dropout &d, uint32_t unit)
{
  vector<uint8_t, V> kept;
  uint64_t first = (uint64_t)unit * V;
  if (!d.draws) return vector_at<uint8_t, V>(d.mask.data, place_of(d.mask, unit));
  if (d.part != 0) first = (first / d.part * d.ranks + d.rank) * d.part + first % d.part;
#pragma unroll
  for (int j = 0; j < V; j++)
    kept.x[j] = (mixed(d.key ^ (first + j)) >> 11) >= d.threshold;
  *(vector<uint8_t, V> *)((uint8_t *)d.mask.data + place_of(d.mask, unit)) = kept;
  return kept;
}

template <int V> __global__ void __launch_bounds__(DROPOUT_THREADS) dropout_kernel(dropout d)
{
  uint32_t i = blockIdx.x * DROPOUT_THREADS + threadIdx.x;
  float x[V], other[V];
  if (i >= d.units) return;
  load<V>(d.x, place_of(d.x, i), x);
  if (d.biased) {
    load<V>(d.bias, (int64_t)(i - divided_by(i, d.width) * d.width.by) * V, other);
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] += other[j];
  }
  if (d.adds) load<V>(d.residual, place_of(d.residual, i), other);
  if (d.drops) {
    vector<uint8_t, V> kept = mask_of<V>(d, i);
#pragma unroll
    for (int j = 0; j < V; j++)
      x[j] = kept.x[j] != 0 ? x[j] * d.factor : 0;
  }
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = d.adds ? x[j] + other[j] : x[j];
  store<V>(d.y, place_of(d.y, i), x);
}

/* The least whole number n with n 2^-53 >= probability. */
static uint64_t threshold_of(double probability)
{
  double scaled = probability * 0x1p53;
  uint64_t whole = (uint64_t)scaled;
  return (double)whole < scaled ? whole + 1 : whole;
}

struct dropout_operands {
  const tensor *x, *y, *mask, *residual, *bias; /* NULL: none */
  bool draws;
};

static bool same_elements(const tensor *t, int64_t elements, int v, layout *l)
{
  *l = layout{};
  if (t == NULL) return true;
  return (is_number(*t) || t->type == DTYPE_BYTE) && elements_of(*t) == elements &&
         layout_of(*t, v, v, l);
}

static int dropout_of(const exec_call *c, const dropout_operands &o, dropout *d)
{
  const tensor *all[3] = { o.x, o.y, o.residual != NULL ? o.residual : o.x };
  int64_t elements = elements_of(*o.x), width = o.bias != NULL ? elements_of(*o.bias) : 8;
  uint64_t blocks = o.draws ? (uint64_t)c->call->scalars[1] : 0;
  int v = vector_elements(all, 3);
  if (!is_number(*o.x) || !is_number(*o.y) || elements % v != 0 || width % v != 0 || width == 0)
    return 0;
  d->width = divisor_of((uint32_t)(width / v));
  d->units = (uint32_t)(elements / v);
  d->key = o.draws ? ref_dropout_key(c) : 0;
  d->threshold = threshold_of(c->call->scalars[0]);
  d->factor = 1.0f / (1.0f - (float)c->call->scalars[0]);
  d->part = blocks > 0 ? (uint64_t)elements / blocks : 0;
  d->ranks = c->rank->group[GROUP_TP].size;
  d->rank = c->rank->group[GROUP_TP].index;
  d->drops = o.mask != NULL;
  d->draws = o.draws;
  d->adds = o.residual != NULL;
  d->biased = o.bias != NULL;
  d->bias = layout{};
  bool suits = d->part % (uint64_t)v == 0 && same_elements(o.x, elements, v, &d->x) &&
               same_elements(o.y, elements, v, &d->y) &&
               same_elements(o.mask, elements, v, &d->mask) &&
               same_elements(o.residual, elements, v, &d->residual) &&
               (o.bias == NULL || (is_number(*o.bias) && layout_of(*o.bias, width, v, &d->bias)));
  return suits ? v : 0;
}

static void launch(cuda_call *c, const dropout_operands &o)
{
  dropout d;
  int v = dropout_of(c->of, o, &d);
  uint32_t blocks = blocks_of(d.units, DROPOUT_THREADS);
  if (d.units == 0) return;
  if (v == 8)
    dropout_kernel<8><<<blocks, DROPOUT_THREADS, 0, stream_of(c)>>>(d);
  else
    dropout_kernel<4><<<blocks, DROPOUT_THREADS, 0, stream_of(c)>>>(d);
  launched(c);
}

/* reads x, writes y and the mask. */
static dropout_operands forward_operands(const exec_call *c)
{
  dropout_operands o = { &c->reads[0], &c->writes[0], &c->writes[1], NULL, NULL, true };
  return o;
}

/* reads gy[, mask], writes gx. */
static dropout_operands backward_operands(const exec_call *c)
{
  dropout_operands o = { &c->reads[0], &c->writes[0], c->read_count > 1 ? &c->reads[1] : NULL,
                         NULL,         NULL,          false };
  return o;
}

/* reads x, residual[, bias], writes y[, mask]; without a mask nothing is dropped. */
static dropout_operands add_operands(const exec_call *c)
{
  const tensor *mask = c->write_count > 1 ? &c->writes[1] : NULL;
  dropout_operands o = {
    &c->reads[0], &c->writes[0], mask, &c->reads[1], c->read_count > 2 ? &c->reads[2] : NULL,
    mask != NULL
  };
  return o;
}

#define DROPOUT_ROW(name, operands)                                                                \
  KERNEL_SUITS(name)                                                                               \
  {                                                                                                \
    dropout d;                                                                                     \
    return dropout_of(c, operands(c), &d) > 0;                                                     \
  }                                                                                                \
  KERNEL_LAUNCH(name)                                                                              \
  {                                                                                                \
    launch(c, operands(c->of));                                                                    \
  }

DROPOUT_ROW(dropout_forward, forward_operands)
DROPOUT_ROW(dropout_backward, backward_operands)
DROPOUT_ROW(bias_dropout_add_forward, add_operands)
