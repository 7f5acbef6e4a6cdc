#include "cuda/kernels/fast/attention_backward.cuh"

/* A warp to a row. */
__global__ void attention_deltas_kernel(attention_shape a, row_terms *terms)
{
  int64_t row = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  int64_t of_head = row_terms_of_head(a), query = row % of_head, head = row / of_head % a.heads;
  int64_t batch = row / of_head / a.heads, lane = threadIdx.x % WARP;
  if (batch >= a.batch) return;
  row_terms t = { INFINITY, 0 };
  if (query < a.queries) {
    head_rows g = rows_of(a.operands[BACKWARD_OUTPUT_GRADIENT], batch, head, a.queries);
    head_rows o = rows_of(a.operands[BACKWARD_OUTPUT], batch, head, a.queries);
    for (int64_t i = lane * 2; i < a.v; i += 2 * WARP) {
      uint32_t x = *(const uint32_t *)(g.first + query * g.stride + i);
      uint32_t y = *(const uint32_t *)(o.first + query * o.stride + i);
      t.delta += __uint_as_float(x << 16) * __uint_as_float(y << 16);
      t.delta += __uint_as_float(x & 0xffff0000) * __uint_as_float(y & 0xffff0000);
    }
    for (int i = WARP / 2; i > 0; i /= 2)
      t.delta += __shfl_xor_sync(0xffffffff, t.delta, i);
    t.log_sum = a.log_sums[(batch * a.heads + head) * a.queries + query] * (float)M_LOG2E;
  }
  if (lane == 0) terms[row] = t;
}

/* ---- launch --------------------------------------------------------------------------------- */

int64_t attention_own_backward_scratch(const attention_shape *a)
{
  return a->batch * a->heads * row_terms_of_head(*a) * (int64_t)sizeof(row_terms);
}

void attention_own_backward(cuda_call *c, const attention_shape *a)
{
  const int warps = 8;
  row_terms *terms = (row_terms *)c->scratch;
  int64_t rows = a->batch * a->heads * row_terms_of_head(*a);
  attention_deltas_kernel<<<(unsigned)((rows + warps - 1) / warps), warps * WARP, 0,
                            (cudaStream_t)c->stream>>>(*a, terms);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
  attention_key_gradients(c, a, terms);
  attention_query_gradients(c, a, terms);
}
