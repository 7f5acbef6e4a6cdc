/*
 * Data-parallel loops: for_each(c, n, KERNEL_LAMBDA(int64_t i) { ... }) runs the body for every i < n,
 * in no order, in the call's stream. Bodies capture by value what they need (tensors, numbers) and
 * write different elements. The loops of a call run one after the other.
 *
 * nvcc makes each body a kernel; a plain C++ compiler makes it a loop that a thread of the CPU runs
 * (cuda/device/device.h, the host driver).
 */
#ifndef OFFSIM_CUDA_KERNELS_FOR_EACH_CUH
#define OFFSIM_CUDA_KERNELS_FOR_EACH_CUH

#include "cuda/kernels/kernel.h"

#ifdef __CUDACC__

#include <cuda_runtime_api.h>

#define DEVICE        __device__
#define KERNEL_LAMBDA [=] __device__

template <class F> __global__ void for_each_kernel(int64_t n, F body)
{
  int64_t step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step)
    body(i);
}

template <class F> void for_each(cuda_call *c, int64_t n, F body)
{
  const int threads = 128;
  const int64_t most = 1 << 20;
  if (n <= 0 || c->failure != NULL) return;
  int64_t blocks = (n + threads - 1) / threads;
  for_each_kernel<<<(unsigned)(blocks < most ? blocks : most), threads, 0,
                    (cudaStream_t)c->stream>>>(n, body);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) c->failure = cudaGetErrorString(error);
}

#define EXACT(name) cuda_exact_##name

#else

#define DEVICE
#define KERNEL_LAMBDA [=]

template <class F> struct host_loop {
  int64_t n;
  F body;
};

template <class F> void host_loop_run(void *context)
{
  const host_loop<F> *loop = (const host_loop<F> *)context;
  for (int64_t i = 0; i < loop->n; i++)
    loop->body(i);
}

template <class F> void for_each(cuda_call *c, int64_t n, F body)
{
  host_loop<F> loop = { n, body };
  if (n > 0) host_stream_run(c->stream, host_loop_run<F>, &loop, sizeof loop);
}

#define EXACT(name) host_exact_##name

#endif

/* One body, one time: what must go on in order. */
template <class F> void run_once(cuda_call *c, F body)
{
  for_each(c, 1, body);
}

#endif
