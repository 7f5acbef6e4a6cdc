/*
 * Activations of rows, gated or not, with a bias or without: a thread has some neighbouring outputs
 * of a row.
 */
#include "cuda/kernels/fast/activation.cuh"
#include "cuda/kernels/fast/layout.cuh"

enum { ACTIVATION_THREADS = 256 };

struct activation {
  layout gy, x, bias, out; /* rows */
  divisor vectors;         /* of a row of outputs */
  int32_t outputs;
  uint32_t units;
  bool gated, biased;
};

template <int V>
static __device__ inline void load_input(const activation &a, int64_t row, int32_t column, float *x)
{
  load<V>(a.x, row + column, x);
  if (!a.biased) return;
  float bias[V];
  load<V>(a.bias, column, bias);
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] += bias[j];
}

template <int V, class F>
__global__ void __launch_bounds__(ACTIVATION_THREADS) forward_kernel(activation a)
{
  uint32_t unit = blockIdx.x * ACTIVATION_THREADS + threadIdx.x;
  if (unit >= a.units) return;
  uint32_t row = divided_by(unit, a.vectors);
  int32_t column = (int32_t)(unit - row * a.vectors.by) * V;
  int64_t from = place_of(a.x, row);
  float x[V], second[V];
  load_input<V>(a, from, column, x);
  if (a.gated) load_input<V>(a, from, a.outputs + column, second);
#pragma unroll
  for (int j = 0; j < V; j++)
    x[j] = a.gated ? F::value(x[j]) * second[j] : F::value(x[j]);
  store<V>(a.out, place_of(a.out, row) + column, x);
}

template <int V, class F>
__global__ void __launch_bounds__(ACTIVATION_THREADS) backward_kernel(activation a)
{
  uint32_t unit = blockIdx.x * ACTIVATION_THREADS + threadIdx.x;
  if (unit >= a.units) return;
  uint32_t row = divided_by(unit, a.vectors);
  int32_t column = (int32_t)(unit - row * a.vectors.by) * V;
  int64_t from = place_of(a.x, row), to = place_of(a.out, row);
  float gy[V], x[V], second[V];
  load<V>(a.gy, place_of(a.gy, row) + column, gy);
  load_input<V>(a, from, column, x);
  if (a.gated) load_input<V>(a, from, a.outputs + column, second);
#pragma unroll
  for (int j = 0; j < V; j++) {
    float value = a.gated ? F::value(x[j]) : 0;
    x[j] = F::slope(x[j]) * (a.gated ? gy[j] * second[j] : gy[j]);
    second[j] = gy[j] * value;
  }
  store<V>(a.out, to + column, x);
  if (a.gated) store<V>(a.out, to + a.outputs + column, second);
}

/* Of one that has `outputs` and, in two operands, rows of inputs. */
static bool activation_of(const exec_call *c, const tensor &outputs, const tensor &x,
                          const tensor &other, const tensor *bias, int *v, activation *a)
{
  int64_t rows = c->call->dims[0], count = elements_of(outputs);
  const tensor *all[3] = { &outputs, &x, &other };
  *v = vector_elements(all, 3);
  if (rows == 0 || count == 0 || count % rows != 0 || count / rows % *v != 0) return false;
  int64_t width = count / rows, units = count / *v;
  a->gated = c->call->scalars[1] != 0;
  a->biased = bias != NULL;
  a->outputs = (int32_t)width;
  a->units = (uint32_t)units;
  a->vectors = divisor_of((uint32_t)(width / *v));
  a->bias = layout{};
  int64_t inputs = a->gated ? 2 * width : width;
  return units < INT32_MAX && inputs < INT32_MAX && rows_suit(x, rows, inputs, *v, &a->x) &&
         (bias == NULL || rows_suit(*bias, 1, inputs, *v, &a->bias));
}

static bool forward_of(const exec_call *c, int *v, activation *a)
{
  const tensor *y = &c->writes[0];
  a->gy = layout{};
  return activation_of(c, *y, c->reads[0], *y, c->read_count > 1 ? &c->reads[1] : NULL, v, a) &&
         rows_suit(*y, c->call->dims[0], a->outputs, *v, &a->out);
}

static bool backward_of(const exec_call *c, int *v, activation *a)
{
  const tensor *gy = &c->reads[0], *x = &c->reads[1], *gx = &c->writes[0];
  int64_t rows = c->call->dims[0];
  return activation_of(c, *gy, *x, *gx, c->read_count > 2 ? &c->reads[2] : NULL, v, a) &&
         rows_suit(*gy, rows, a->outputs, *v, &a->gy) &&
         rows_suit(*gx, rows, a->gated ? 2 * a->outputs : a->outputs, *v, &a->out);
}

KERNEL_SUITS(activation_forward)
{
  activation a;
  int v;
  return forward_of(c, &v, &a);
}

KERNEL_LAUNCH(activation_forward)
{
  activation a;
  int v;
  forward_of(c->of, &v, &a);
  uint32_t blocks = blocks_of(a.units, ACTIVATION_THREADS);
  with_activation((activation_function)c->of->call->scalars[0], [&](auto f) {
    typedef decltype(f) F;
    if (v == 8)
      forward_kernel<8, F><<<blocks, ACTIVATION_THREADS, 0, stream_of(c)>>>(a);
    else
      forward_kernel<4, F><<<blocks, ACTIVATION_THREADS, 0, stream_of(c)>>>(a);
  });
  launched(c);
}

KERNEL_SUITS(activation_backward)
{
  activation a;
  int v;
  return backward_of(c, &v, &a);
}

KERNEL_LAUNCH(activation_backward)
{
  activation a;
  int v;
  backward_of(c->of, &v, &a);
  uint32_t blocks = blocks_of(a.units, ACTIVATION_THREADS);
  with_activation((activation_function)c->of->call->scalars[0], [&](auto f) {
    typedef decltype(f) F;
    if (v == 8)
      backward_kernel<8, F><<<blocks, ACTIVATION_THREADS, 0, stream_of(c)>>>(a);
    else
      backward_kernel<4, F><<<blocks, ACTIVATION_THREADS, 0, stream_of(c)>>>(a);
  });
  launched(c);
}
