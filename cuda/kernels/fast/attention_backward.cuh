/*
 * Attention backward, in three kernels without atomic additions: what rows need (deltas), then the
 * gradients of keys and values, then those of queries; the two compute the probabilities again,
 * each for itself.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_BACKWARD_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_BACKWARD_CUH

#include <math.h>

#include "cuda/kernels/fast/attention_own.h"
#include "cuda/kernels/fast/attention_tile.cuh"

enum { ROW_TERMS_QUERIES = 128 }; /* rows of a head are filled up to a multiple of it */

/* Of a query, for the later kernels: log sum in powers of two, so that a score's probability is
 * 2^(score - log_sum); the sum of gradient times output. Of one that is not there: infinity, which
 * makes all its probabilities 0. */
struct row_terms {
  float log_sum, delta;
};

__host__ __device__ static inline int64_t row_terms_of_head(const attention_shape &a)
{
  return (a.queries + ROW_TERMS_QUERIES - 1) / ROW_TERMS_QUERIES * ROW_TERMS_QUERIES;
}

void attention_key_gradients(cuda_call *c, const attention_shape *a, const row_terms *terms);
void attention_query_gradients(cuda_call *c, const attention_shape *a, const row_terms *terms);

/* Probabilities from scores, and in place of their gradients those of scores (without the scale),
 * for one element. */
__device__ static inline void score_gradient(float &score, float &gradient, const row_terms &row,
                                             float factor, bool seen)
{
  score = seen ? power_of_two(fmaf(score, factor, -row.log_sum)) : 0;
  gradient = score * (gradient - row.delta);
}

/* Starts a kernel with as much shared memory as it asks for. */
template <class K>
void launch_attention(cuda_call *c, K *kernel, dim3 grid, int threads, int shared_bytes,
                      const attention_shape *a, const row_terms *terms)
{
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (c->failure != NULL) return;
  if (error == cudaSuccess) {
    kernel<<<grid, threads, shared_bytes, (cudaStream_t)c->stream>>>(*a, terms);
    error = cudaGetLastError();
  }
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

#endif
