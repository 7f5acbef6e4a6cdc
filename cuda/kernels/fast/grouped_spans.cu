#include "cuda/kernels/fast/grouped_spans.cuh"

#include <cuda_runtime_api.h>

enum { COUNT_THREADS = 256 };

/* What is looked at to count the rows of experts. */
typedef struct counting {
  expert_index form;
  const void *index;
  int64_t elements;
  int32_t rows, experts;
} counting;

__device__ static bool is_row_of(const counting &c, int64_t i, int32_t e)
{
  if (c.form == EXPERTS_CELLS) {
    int64_t cell = ((const int64_t *)c.index)[i];
    return cell >= 0 && cell >> 32 == e;
  }
  return ((const int32_t *)c.index)[i * (2 * (int64_t)c.experts + 1) + e] >= 0;
}

/* A block counts the rows of an expert. */
__global__ void count_rows(counting c, int32_t *counts)
{
  __shared__ int32_t parts[COUNT_THREADS];
  int32_t count = 0;
  for (int64_t i = threadIdx.x; i < c.elements; i += COUNT_THREADS)
    count += is_row_of(c, i, (int32_t)blockIdx.x);
  parts[threadIdx.x] = count;
  for (int half = COUNT_THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = parts[0];
}

__device__ static int32_t count_of(const counting &c, const int32_t *counts, int32_t e)
{
  if (c.form == EXPERTS_EQUAL) return c.rows / c.experts + (e < c.rows % c.experts);
  return c.form == EXPERTS_COUNTS ? ((const int32_t *)c.index)[e] : counts[e];
}

/* Experts one after the other; rows that come when the buffer is full are left out. */
__global__ void add_up(counting c, int32_t tile_rows, expert_table *table)
{
  __shared__ int32_t counts[GROUPED_EXPERTS_MOST];
  int32_t first = 0, tile = 0;
  for (int32_t e = (int32_t)threadIdx.x; e < c.experts; e += COUNT_THREADS)
    counts[e] = count_of(c, table->counts, e);
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int32_t e = 0; e <= c.experts + 1; e++) {
    int32_t left = c.rows - first, count = e < c.experts ? counts[e] : left;
    if (count > left) count = left;
    table->spans[e] = expert_span{ first, count, tile };
    first += count;
    tile += (count + tile_rows - 1) / tile_rows;
  }
}

void fill_expert_table(cuda_call *c, const grouped_product *p, int32_t tile_rows,
                       expert_table *table)
{
  cudaStream_t stream = (cudaStream_t)c->stream;
  counting of = { p->form, p->index, p->index_elements, p->rows, p->experts };
  if (p->form == EXPERTS_MAP || p->form == EXPERTS_CELLS)
    count_rows<<<(unsigned)p->experts, COUNT_THREADS, 0, stream>>>(of, table->counts);
  add_up<<<1, COUNT_THREADS, 0, stream>>>(of, tile_rows, table);
}
