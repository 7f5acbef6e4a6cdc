/* Sums of neighbouring elements, and of rows that were repeated; a bias that is added to rows. */
#include "cuda/kernels/fast/map.cuh"

enum { SUM_THREADS = 512, REPEAT_THREADS = 256 };

struct sum_call {
  layout x, y; /* units of one */
  int64_t width;
  float factor;
};

/* A block for each sum. */
__global__ void __launch_bounds__(SUM_THREADS) sum_kernel(sum_call s)
{
  __shared__ float parts[SUM_THREADS];
  uint32_t first = (uint32_t)(blockIdx.x * s.width);
  float sum = 0;
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < s.width; i += SUM_THREADS)
    sum += number_at(s.x, first + i);
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (uint32_t step = SUM_THREADS / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) store_one(s.y, place_of(s.y, blockIdx.x), parts[0] * s.factor);
}

static bool sum_of(const exec_call *c, sum_call *s)
{
  int64_t sums = elements_of(c->writes[0]), elements = elements_of(c->reads[0]);
  if (sums == 0 || elements % sums != 0 || !is_number(c->reads[0]) || !is_number(c->writes[0]))
    return false;
  s->width = elements / sums;
  s->factor = (float)c->call->scalars[0];
  return layout_of(c->reads[0], 1, 1, &s->x) && layout_of(c->writes[0], 1, 1, &s->y);
}

KERNEL_SUITS(sum)
{
  sum_call s;
  return sum_of(c, &s);
}

KERNEL_LAUNCH(sum)
{
  sum_call s;
  if (!sum_of(c->of, &s)) return;
  sum_kernel<<<(unsigned)elements_of(c->of->writes[0]), SUM_THREADS, 0, stream_of(c)>>>(s);
  launched(c);
}

/* ---- repeated rows --------------------------------------------------------------------------- */

struct repeat_call {
  layout x, y; /* rows */
  divisor vectors;
  uint32_t units, times;
};

template <int V> __global__ void __launch_bounds__(REPEAT_THREADS) repeat_kernel(repeat_call r)
{
  uint32_t i = blockIdx.x * REPEAT_THREADS + threadIdx.x;
  float sum[V], x[V];
  if (i >= r.units) return;
  uint32_t row = divided_by(i, r.vectors);
  int64_t column = (int64_t)(i - row * r.vectors.by) * V;
  load<V>(r.x, place_of(r.x, row * r.times) + column, sum);
  for (uint32_t k = 1; k < r.times; k++) {
    load<V>(r.x, place_of(r.x, row * r.times + k) + column, x);
#pragma unroll
    for (int j = 0; j < V; j++)
      sum[j] += x[j];
  }
  store<V>(r.y, place_of(r.y, row) + column, sum);
}

static int repeat_of(const exec_call *c, repeat_call *r)
{
  int64_t times = (int64_t)c->call->scalars[0], width = (int64_t)c->call->scalars[1];
  const tensor *x = &c->reads[0], *y = &c->writes[0], *all[2] = { x, y };
  int v = vector_elements(all, 2);
  if (!is_number(*x) || !is_number(*y) || width % v != 0 || x->data == y->data ||
      elements_of(*x) != elements_of(*y) * times || elements_of(*y) / v >= INT32_MAX)
    return 0;
  r->vectors = divisor_of((uint32_t)(width / v));
  r->units = (uint32_t)(elements_of(*y) / v);
  r->times = (uint32_t)times;
  return layout_of(*x, width, v, &r->x) && layout_of(*y, width, v, &r->y) ? v : 0;
}

KERNEL_SUITS(repeat_backward)
{
  repeat_call r;
  return repeat_of(c, &r) != 0;
}

KERNEL_LAUNCH(repeat_backward)
{
  repeat_call r;
  int v = repeat_of(c->of, &r);
  uint32_t blocks = blocks_of(r.units, REPEAT_THREADS);
  if (r.units == 0) return;
  if (v == 8)
    repeat_kernel<8><<<blocks, REPEAT_THREADS, 0, stream_of(c)>>>(r);
  else
    repeat_kernel<4><<<blocks, REPEAT_THREADS, 0, stream_of(c)>>>(r);
  launched(c);
}

/* ---- a bias ---------------------------------------------------------------------------------- */

struct bias_sum {
  __device__ void operator()(const float *x, float *y) const
  {
    y[0] = x[0] + x[1];
  }
};

/* The bias as rows that are all the same. */
static bool biased_of(const exec_call *c, tensor *in)
{
  int64_t rows = c->call->dims[0], h = c->call->dims[1];
  in[0] = c->reads[0];
  in[1] = c->reads[1];
  in[1].rank = 2;
  in[1].shape[0] = rows;
  in[1].shape[1] = h;
  in[1].strides[0] = 0;
  in[1].strides[1] = 1;
  return is_contiguous(c->reads[1]) && elements_of(c->reads[1]) == h;
}

KERNEL_SUITS(bias_add)
{
  tensor in[2];
  return biased_of(c, in) && map_suits<2, 1>(in, c->writes);
}

KERNEL_LAUNCH(bias_add)
{
  tensor in[2];
  if (biased_of(c->of, in)) map<2, 1>(c, in, c->of->writes, bias_sum{});
}
