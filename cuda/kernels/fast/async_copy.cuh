/* Copies of 16 bytes from device memory to shared memory that run while the thread computes. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ASYNC_COPY_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ASYNC_COPY_CUH

#include <stdint.h>

__device__ static inline uint32_t shared_address(const void *p)
{
  return (uint32_t)__cvta_generic_to_shared(p);
}

/* Zeros if not `exists`; `from` is then not read. */
__device__ static inline void copy_16(uint32_t to, const void *from, bool exists)
{
  int bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ static inline void copy_commit()
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int GROUPS> __device__ static inline void copy_wait()
{
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

/* What this thread has written to shared memory can be read by wgmma. */
__device__ static inline void show_to_wgmma()
{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
