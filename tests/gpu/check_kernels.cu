#include "tests/gpu/check_kernels.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

template <int which> __global__ void spin(int64_t ns)
{
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while ((int64_t)(now - begin) < ns);
}

void launch_spin(int which, int64_t ns, gpu_stream *stream)
{
  cudaStream_t s = (cudaStream_t)stream;
  if (which == 0)
    spin<0><<<1, 1, 0, s>>>(ns);
  else if (which == 1)
    spin<1><<<1, 1, 0, s>>>(ns);
  else
    spin<2><<<1, 1, 0, s>>>(ns);
}

const char *launch_spin_by_driver(int64_t ns, gpu_stream *stream)
{
  PFN_cuLaunchKernel_v4000 launch;
  cudaFunction_t function;
  void *arguments[] = { &ns };
  enum cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuLaunchKernel", (void **)&launch, 4000, cudaEnableDefault,
                                       &found) != cudaSuccess ||
      cudaGetFuncBySymbol(&function, (const void *)spin<0>) != cudaSuccess)
    return "cuLaunchKernel was not found";
  CUresult result =
      launch((CUfunction)function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, NULL);
  return result == CUDA_SUCCESS ? NULL : "cuLaunchKernel failed";
}
