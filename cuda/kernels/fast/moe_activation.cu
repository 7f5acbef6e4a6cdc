/*
 * Gated activations of experts' rows, times a number for each row. Forward: a thread for a vector
 * of the result. Backward: a group of threads for each row, whose sum is the number's gradient.
 */
#include "cuda/kernels/fast/activation.cuh"
#include "cuda/kernels/fast/rows.cuh"

enum { FORWARD_THREADS = 256 };
enum { ROWS, WIDTH };
enum { FUNCTION };

struct weighted {
  layout g, x, p, out, gp; /* rows, but p and gp: a number each */
  row_groups rows;
  divisor vectors; /* of a row of results */
  int32_t f;
  uint32_t units;
  bool has_gp;
};

template <int V, class F>
__global__ void __launch_bounds__(FORWARD_THREADS) weigh_kernel(weighted w)
{
  uint32_t unit = blockIdx.x * FORWARD_THREADS + threadIdx.x;
  if (unit >= w.units) return;
  uint32_t row = divided_by(unit, w.vectors);
  int32_t column = (int32_t)(unit - row * w.vectors.by) * V;
  int64_t from = place_of(w.x, row) + column;
  float x[V], second[V], p = number_at(w.p, row);
  load<V>(w.x, from, x);
  load<V>(w.x, from + w.f, second);
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = F::value(x[j]) * second[j] * p;
  store<V>(w.out, place_of(w.out, row) + column, x);
}

/* Returns the vector's part of the gradient of p. */
template <int V, class F>
static __device__ inline float go_back(const weighted &w, uint32_t row, int32_t column, float p)
{
  int64_t from = place_of(w.x, row) + column, to = place_of(w.out, row) + column;
  float g[V], x[V], second[V], sum = 0;
  load<V>(w.g, place_of(w.g, row) + column, g);
  load<V>(w.x, from, x);
  load<V>(w.x, from + w.f, second);
#pragma unroll
  for (int j = 0; j < V; j++) {
    float value = F::value(x[j]), weighted = g[j] * p;
    sum += g[j] * (value * second[j]);
    x[j] = weighted * second[j] * F::slope(x[j]);
    second[j] = weighted * value;
  }
  store<V>(w.out, to, x);
  store<V>(w.out, to + w.f, second);
  return sum;
}

template <int V, class F>
__global__ void __launch_bounds__(ROWS_MOST_THREADS) weigh_back_kernel(weighted w)
{
  int32_t group = w.rows.group, lane = (int32_t)threadIdx.x % group;
  uint32_t row = blockIdx.x * (uint32_t)rows_per_block(group) + threadIdx.x / (uint32_t)group;
  bool there = row < w.rows.rows;
  float p = number_at(w.p, there ? row : 0), sum = 0;
  for (int32_t i = lane; there && i < w.rows.vectors; i += group)
    sum += go_back<V, F>(w, row, i * V, p);
  sum = group_reduce<add_numbers>(group, sum);
  if (there && lane == 0 && w.has_gp) store_one(w.gp, place_of(w.gp, row), sum);
}

/* Of results [rows, f]: what forward writes and backward reads. */
static bool weighted_of(const exec_call *c, const tensor &results, const tensor &x,
                        const tensor &other, int *v, weighted *w)
{
  int64_t f = c->call->dims[WIDTH], elements = elements_of(results);
  const tensor *all[3] = { &results, &x, &other };
  *v = vector_elements(all, 3);
  if (f <= 0 || f % *v != 0 || 2 * f >= INT32_MAX || elements == 0) return false;
  if (elements % f != 0 || elements / *v >= INT32_MAX) return false;
  *w = weighted{};
  w->f = (int32_t)f;
  w->units = (uint32_t)(elements / *v);
  w->vectors = divisor_of((uint32_t)(f / *v));
  w->rows = row_groups_of(elements / f, f, *v, 1);
  return rows_suit(x, elements / f, 2 * f, *v, &w->x);
}

static bool forward_of(const exec_call *c, int *v, weighted *w)
{
  const tensor &y = c->writes[0];
  return weighted_of(c, y, c->reads[0], y, v, w) && rows_suit(y, w->rows.rows, w->f, *v, &w->out) &&
         numbers_suit(c->reads[1], w->rows.rows, &w->p);
}

static bool backward_of(const exec_call *c, int *v, weighted *w)
{
  const tensor &g = c->reads[0], &gx = c->writes[0];
  if (!weighted_of(c, g, c->reads[1], gx, v, w)) return false;
  int64_t rows = w->rows.rows;
  w->has_gp = c->write_count > 1;
  return rows_suit(g, rows, w->f, *v, &w->g) && rows_suit(gx, rows, 2 * w->f, *v, &w->out) &&
         numbers_suit(c->reads[2], rows, &w->p) &&
         (!w->has_gp || numbers_suit(c->writes[1], rows, &w->gp));
}

static activation_function function_of(const exec_call *c)
{
  return (activation_function)c->call->scalars[FUNCTION];
}

KERNEL_SUITS(weighted_activation_forward)
{
  weighted w;
  int v;
  return forward_of(c, &v, &w);
}

KERNEL_LAUNCH(weighted_activation_forward)
{
  weighted w;
  int v;
  forward_of(c->of, &v, &w);
  uint32_t blocks = blocks_of(w.units, FORWARD_THREADS);
  with_activation(function_of(c->of), [&](auto f) {
    typedef decltype(f) F;
    if (v == 8)
      weigh_kernel<8, F><<<blocks, FORWARD_THREADS, 0, stream_of(c)>>>(w);
    else
      weigh_kernel<4, F><<<blocks, FORWARD_THREADS, 0, stream_of(c)>>>(w);
  });
  launched(c);
}

KERNEL_SUITS(weighted_activation_backward)
{
  weighted w;
  int v;
  return backward_of(c, &v, &w);
}

KERNEL_LAUNCH(weighted_activation_backward)
{
  weighted w;
  int v;
  backward_of(c->of, &v, &w);
  uint32_t blocks = blocks_of(w.rows.rows, rows_per_block(w.rows.group));
  uint32_t threads = threads_per_block(w.rows.group);
  with_activation(function_of(c->of), [&](auto f) {
    typedef decltype(f) F;
    if (v == 8)
      weigh_back_kernel<8, F><<<blocks, threads, 0, stream_of(c)>>>(w);
    else
      weigh_back_kernel<4, F><<<blocks, threads, 0, stream_of(c)>>>(w);
  });
  launched(c);
}
