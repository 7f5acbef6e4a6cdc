/* The same value everywhere. */
#include "cuda/kernels/fast/layout.cuh"
#include "sim/exec/number_formats.h"

enum { FILL_THREADS = 256, FILL_EACH = 4 };

__global__ void __launch_bounds__(FILL_THREADS) fill_kernel(uint4 *to, int64_t units, uint4 value)
{
  int64_t first = (int64_t)blockIdx.x * (FILL_THREADS * FILL_EACH) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < FILL_EACH; k++)
    if (first + k * FILL_THREADS < units) to[first + k * FILL_THREADS] = value;
}

template <class T> __global__ void fill_rest_kernel(T *to, T value)
{
  to[threadIdx.x] = value;
}

template <class T> static void fill(cuda_call *c, const tensor &t, T value)
{
  enum { PER = 16 / sizeof(T) };
  int64_t elements = elements_of(t), units = elements / PER, rest = elements % PER;
  union {
    T each[PER];
    uint4 all;
  } unit;
  for (int i = 0; i < PER; i++)
    unit.each[i] = value;
  if (units > 0)
    fill_kernel<<<blocks_of(units, FILL_THREADS * FILL_EACH), FILL_THREADS, 0, stream_of(c)>>>(
        (uint4 *)t.data, units, unit.all);
  if (rest > 0)
    fill_rest_kernel<T><<<1, (unsigned)rest, 0, stream_of(c)>>>((T *)t.data + units * PER, value);
  launched(c);
}

KERNEL_SUITS(fill)
{
  bool suits = true;
  for (uint32_t i = 0; suits && i < c->write_count; i++)
    suits = is_contiguous(c->writes[i]) && (uintptr_t)c->writes[i].data % 16 == 0 &&
            (is_number(c->writes[i]) || is_index(c->writes[i]));
  return suits;
}

KERNEL_LAUNCH(fill)
{
  for (uint32_t i = 0; i < c->of->write_count && c->failure == NULL; i++) {
    const tensor &t = c->of->writes[i];
    double value = c->of->call->scalars[0];
    switch (t.type) {
    case DTYPE_BF16: fill<uint16_t>(c, t, bf16_code((float)value)); break;
    case DTYPE_FP32: fill<float>(c, t, (float)value); break;
    case DTYPE_INT64: fill<int64_t>(c, t, (int64_t)value); break;
    case DTYPE_INT32: fill<int32_t>(c, t, (int32_t)value); break;
    default: fill<uint8_t>(c, t, (uint8_t)(int64_t)value); break;
    }
  }
}
