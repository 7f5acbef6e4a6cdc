/*
 * Cooperation of threads: counters to which all add, and one block that runs in steps, each of
 * which sees the results of all earlier steps. On the CPU it is one thread.
 */
#ifndef OFFSIM_CUDA_KERNELS_BLOCK_CUH
#define OFFSIM_CUDA_KERNELS_BLOCK_CUH

#include "cuda/kernels/for_each.cuh"

enum { BLOCK_THREADS = 1024 };

#ifdef __CUDACC__

template <class F> __global__ void run_block_kernel(F body)
{
  body((int64_t)threadIdx.x, (int64_t)blockDim.x);
}

/* KERNEL_LAMBDA(int64_t thread, int64_t threads): by all threads of one block. */
template <class F> void run_block(cuda_call *c, F body)
{
  if (c->failure != NULL) return;
  run_block_kernel<<<1, BLOCK_THREADS, 0, (cudaStream_t)c->stream>>>(body);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

/* All threads of the block get here before one goes on. */
DEVICE static inline void block_step(void)
{
  __syncthreads();
}

/* Adds integers, in any order; returns the old value. */
DEVICE static inline int64_t count_up(int64_t *counter, int64_t by)
{
  return (int64_t)atomicAdd((unsigned long long *)counter, (unsigned long long)by);
}

DEVICE static inline void raise_to(uint32_t *largest, uint32_t x)
{
  atomicMax(largest, x);
}

#else

template <class F> struct host_block {
  F body;
};

template <class F> void host_block_run(void *context)
{
  ((const host_block<F> *)context)->body(0, 1);
}

template <class F> void run_block(cuda_call *c, F body)
{
  host_block<F> block = { body };
  host_stream_run(c->stream, host_block_run<F>, &block, sizeof block);
}

static inline void block_step(void)
{
}

/* Other streams may add to the same one. */
static inline int64_t count_up(int64_t *counter, int64_t by)
{
  return __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

static inline void raise_to(uint32_t *largest, uint32_t x)
{
  if (x > *largest) *largest = x;
}

#endif

/* Exclusive prefix sums: x[i] becomes the sum of all before it, x[count] of all; `pieces`:
 * BLOCK_THREADS numbers. */
static inline void prefix_sums(cuda_call *c, int64_t *x, int64_t count, int64_t *pieces)
{
  run_block(
      c, KERNEL_LAMBDA(int64_t thread, int64_t threads) {
        int64_t piece = (count + threads - 1) / threads, first = thread * piece, sum = 0;
        int64_t end = first + piece < count ? first + piece : count;
        for (int64_t i = first; i < end; i++)
          sum += x[i];
        pieces[thread] = sum;
        block_step();
        sum = 0;
        for (int64_t i = 0; i < thread; i++)
          sum += pieces[i];
        for (int64_t i = first; i < end; i++) {
          int64_t own = x[i];
          x[i] = sum;
          sum += own;
        }
        if (thread == threads - 1) x[count] = sum;
      });
}

#endif
