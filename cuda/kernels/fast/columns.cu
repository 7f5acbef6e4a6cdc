#include "cuda/kernels/fast/columns.cuh"

enum { LANES = 32, DEPTH = 16 }; /* columns of a block; threads that share one */

__global__ void __launch_bounds__(LANES *DEPTH)
    partials_kernel(const float *partials, int32_t rows, int32_t columns, void *to, int type)
{
  __shared__ float parts[DEPTH][LANES];
  int32_t column = (int32_t)(blockIdx.x * LANES + threadIdx.x);
  float sum = 0;
  if (column < columns)
#pragma unroll 4
    for (int32_t r = (int32_t)threadIdx.y; r < rows; r += DEPTH)
      sum += partials[(int64_t)r * columns + column];
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (uint32_t step = DEPTH / 2; step > 0; step /= 2) {
    if (threadIdx.y < step)
      parts[threadIdx.y][threadIdx.x] += parts[threadIdx.y + step][threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < columns) store<1>(to, type, column, &parts[0][threadIdx.x]);
}

extern "C" void fast_add_partials(cuda_call *c, const float *partials, int64_t rows,
                                  int64_t columns, const tensor *to)
{
  dim3 threads(LANES, DEPTH);
  if (c->failure != NULL) return;
  partials_kernel<<<blocks_of(columns, LANES), threads, 0, stream_of(c)>>>(
      partials, (int32_t)rows, (int32_t)columns, to->data, to->type);
  launched(c);
}
