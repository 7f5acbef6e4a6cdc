/*
 * Sums of columns: of a gradient for a bias, of gradients for gamma. A block sums a part of the
 * rows for 32 vectors of columns; columns.cuh does the rest.
 */
#include "cuda/kernels/fast/columns.cuh"

enum { ACROSS = 32, DOWN = 8, SLAB_BLOCKS = COLUMNS_PROCESSORS * 8 };

struct column_sums {
  layout gy, x, rstd; /* rows; x and rstd: of gamma alone */
  uint32_t rows;
  int32_t columns, slabs;
  float *partials; /* [slabs][columns] */
};

/* GAIN: gy (x rstd), else gy. */
template <int V, bool GAIN>
__global__ void __launch_bounds__(ACROSS *DOWN) column_sums_kernel(column_sums s)
{
  __shared__ float parts[DOWN][ACROSS * V];
  int32_t column = (int32_t)(blockIdx.x * ACROSS + threadIdx.x) * V;
  uint32_t step = (uint32_t)s.slabs * DOWN;
  float sum[V] = {};
  if (column < s.columns)
#pragma unroll 4
    for (uint32_t row = blockIdx.y * DOWN + threadIdx.y; row < s.rows; row += step) {
      float gy[V], x[V];
      load<V>(s.gy, place_of(s.gy, row) + column, gy);
      if (GAIN) load<V>(s.x, place_of(s.x, row) + column, x);
      float rstd = GAIN ? number_at(s.rstd, row) : 1.0f;
#pragma unroll
      for (int j = 0; j < V; j++)
        sum[j] += GAIN ? gy[j] * (x[j] * rstd) : gy[j];
    }
#pragma unroll
  for (int j = 0; j < V; j++)
    parts[threadIdx.y][threadIdx.x * V + j] = sum[j];
  __syncthreads();
  int32_t thread = (int32_t)(threadIdx.y * ACROSS + threadIdx.x),
          first = (int32_t)blockIdx.x * ACROSS * V;
  for (int32_t i = thread; i < ACROSS * V && first + i < s.columns; i += ACROSS * DOWN) {
    float total = 0;
#pragma unroll
    for (int k = 0; k < DOWN; k++)
      total += parts[k][i];
    s.partials[(int64_t)blockIdx.y * s.columns + first + i] = total;
  }
}

/* The vector; 0: it does not suit. */
static int sums_of(const exec_call *c, bool gain, column_sums *s)
{
  const tensor *gy = &c->reads[0], *x = &c->reads[gain ? 1 : 0], *all[2] = { gy, x };
  int64_t columns = elements_of(c->writes[0]), elements = elements_of(*gy);
  if (!is_number(*gy) || !is_number(*x) || !is_number(c->writes[0]) ||
      !is_contiguous(c->writes[0]) || columns == 0 || elements == 0 || elements % columns != 0 ||
      elements / columns >= INT32_MAX / 2 || columns >= INT32_MAX / 2)
    return 0;
  int64_t rows = elements / columns;
  s->rows = (uint32_t)rows;
  s->columns = (int32_t)columns;
  s->rstd = layout{};
  if (gain && (elements_of(*x) != elements || elements_of(c->reads[2]) != rows ||
               !is_number(c->reads[2]) || !layout_of(c->reads[2], 1, 1, &s->rstd)))
    return 0;
  for (int v = vector_elements(all, 2);; v = 1) {
    int64_t tiles = blocks_of(columns, ACROSS * v), most = blocks_of(rows, DOWN);
    int64_t slabs = SLAB_BLOCKS / tiles > 0 ? SLAB_BLOCKS / tiles : 1;
    s->slabs = (int32_t)(slabs < most ? slabs : most);
    if (columns % v == 0 && layout_of(*gy, columns, v, &s->gy) && layout_of(*x, columns, v, &s->x))
      return v;
    if (v == 1) return 0;
  }
}

static int64_t scratch(const exec_call *c, bool gain)
{
  column_sums s;
  if (sums_of(c, gain, &s) == 0) return 0;
  return (int64_t)s.slabs * s.columns * (int64_t)sizeof(float);
}

template <bool GAIN> static void sums(cuda_call *c)
{
  column_sums s;
  int v = sums_of(c->of, GAIN, &s);
  dim3 threads(ACROSS, DOWN), blocks(blocks_of(s.columns, ACROSS * v), (unsigned)s.slabs);
  s.partials = (float *)c->scratch;
  if (v == 8)
    column_sums_kernel<8, GAIN><<<blocks, threads, 0, stream_of(c)>>>(s);
  else if (v == 4)
    column_sums_kernel<4, GAIN><<<blocks, threads, 0, stream_of(c)>>>(s);
  else
    column_sums_kernel<1, GAIN><<<blocks, threads, 0, stream_of(c)>>>(s);
  launched(c);
  fast_add_partials(c, s.partials, s.slabs, s.columns, &c->of->writes[0]);
}

#define COLUMN_SUMS_ROW(name, gain)                                                                \
  KERNEL_SUITS(name)                                                                               \
  {                                                                                                \
    column_sums s;                                                                                 \
    return sums_of(c, gain, &s) != 0;                                                              \
  }                                                                                                \
  KERNEL_SCRATCH(name)                                                                             \
  {                                                                                                \
    return scratch(c, gain);                                                                       \
  }                                                                                                \
  KERNEL_LAUNCH(name)                                                                              \
  {                                                                                                \
    sums<gain>(c);                                                                                 \
  }

COLUMN_SUMS_ROW(column_sums, false)
COLUMN_SUMS_ROW(rmsnorm_gain, true)
