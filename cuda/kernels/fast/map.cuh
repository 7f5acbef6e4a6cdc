/*
 * Element i of each write depends on elements i of the reads, for any shapes and strides they have:
 * a functor is given IN numbers and makes OUT. Operands may be the same.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_MAP_CUH
#define OFFSIM_CUDA_KERNELS_FAST_MAP_CUH

#include "cuda/kernels/fast/layout.cuh"

enum { MAP_THREADS = 256 };

template <int IN, int OUT> struct map_operands {
  layout in[IN], out[OUT];
  uint32_t units;
};

template <int V, int IN, int OUT, class F>
__global__ void __launch_bounds__(MAP_THREADS) map_kernel(map_operands<IN, OUT> o, F f)
{
  uint32_t i = blockIdx.x * MAP_THREADS + threadIdx.x;
  float in[IN][V], out[OUT][V];
  if (i >= o.units) return;
#pragma unroll
  for (int k = 0; k < IN; k++)
    load<V>(o.in[k], place_of(o.in[k], i), in[k]);
#pragma unroll
  for (int j = 0; j < V; j++) {
    float x[IN], y[OUT];
#pragma unroll
    for (int k = 0; k < IN; k++)
      x[k] = in[k][j];
    f(x, y);
#pragma unroll
    for (int k = 0; k < OUT; k++)
      out[k][j] = y[k];
  }
#pragma unroll
  for (int k = 0; k < OUT; k++)
    store<V>(o.out[k], place_of(o.out[k], i), out[k]);
}

template <int IN, int OUT>
static inline bool map_layouts(const tensor *in, const tensor *out, int v, map_operands<IN, OUT> *o)
{
  int64_t elements = elements_of(out[0]);
  o->units = (uint32_t)(elements / v);
  if (elements % v != 0) return false;
  for (int k = 0; k < IN; k++)
    if (!is_number(in[k]) || elements_of(in[k]) != elements || !layout_of(in[k], v, v, &o->in[k]))
      return false;
  for (int k = 0; k < OUT; k++)
    if (!is_number(out[k]) || elements_of(out[k]) != elements ||
        !layout_of(out[k], v, v, &o->out[k]))
      return false;
  return true;
}

/* Vectors where they can be, else single elements; 0: neither. */
template <int IN, int OUT>
static inline int map_vector(const tensor *in, const tensor *out, map_operands<IN, OUT> *o)
{
  const tensor *all[IN + OUT];
  for (int k = 0; k < IN + OUT; k++)
    all[k] = k < IN ? &in[k] : &out[k - IN];
  int widest = vector_elements(all, IN + OUT);
  if (map_layouts<IN, OUT>(in, out, widest, o)) return widest;
  return map_layouts<IN, OUT>(in, out, 1, o) ? 1 : 0;
}

template <int IN, int OUT> static inline bool map_suits(const tensor *in, const tensor *out)
{
  map_operands<IN, OUT> o;
  return map_vector<IN, OUT>(in, out, &o) > 0;
}

template <int IN, int OUT, class F> void map(cuda_call *c, const tensor *in, const tensor *out, F f)
{
  map_operands<IN, OUT> o;
  int v = map_vector<IN, OUT>(in, out, &o);
  uint32_t blocks = blocks_of(o.units, MAP_THREADS);
  if (o.units == 0 || c->failure != NULL) return;
  if (v == 8)
    map_kernel<8, IN, OUT, F><<<blocks, MAP_THREADS, 0, stream_of(c)>>>(o, f);
  else if (v == 4)
    map_kernel<4, IN, OUT, F><<<blocks, MAP_THREADS, 0, stream_of(c)>>>(o, f);
  else
    map_kernel<1, IN, OUT, F><<<blocks, MAP_THREADS, 0, stream_of(c)>>>(o, f);
  launched(c);
}

#endif
