/*
 * Matrix instructions of a group of four warps, for attention: 64 rows of sums, 32 to 128 wide, of
 * products of bf16, 16 at a time (PTX ISA, wgmma.m64nNk16).
 *
 * Warp w has rows 16 w and on; of those thread i has rows i / 4 and i / 4 + 8 and columns
 * 2 (i % 4) and the next of every 8. Sums of two neighbouring blocks of 8 columns, rounded to bf16,
 * are 16 columns of a left factor.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_MMA_CUH
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_MMA_CUH

#include "cuda/kernels/fast/wgmma.cuh"

#define SUMS_2(n)                                                                                  \
  "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3]), "+f"(d[n + 1][0]),                   \
      "+f"(d[n + 1][1]), "+f"(d[n + 1][2]), "+f"(d[n + 1][3])
#define SUMS_8(n) SUMS_2(n), SUMS_2(n + 2), SUMS_2(n + 4), SUMS_2(n + 6)

/* sums = rows of a times rows of b, over 16 columns; or += where `add`. */
__device__ static inline void multiply_tiles(float (&d)[4][4], uint64_t a, uint64_t b, int add)
{
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
               "}, %16, %17, p, 1, 1, 0, 0; }"
               : SUMS_2(0), SUMS_2(2)
               : "l"(a), "l"(b), "r"(add));
}

__device__ static inline void multiply_tiles(float (&d)[8][4], uint64_t a, uint64_t b, int add)
{
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
               "}, %32, %33, p, 1, 1, 0, 0; }"
               : SUMS_8(0)
               : "l"(a), "l"(b), "r"(add));
}

/* sums += a, 16 columns of it, times 16 rows of b. */
__device__ static inline void multiply_registers(float (&d)[8][4], const uint32_t (&a)[4],
                                                 uint64_t b)
{
  asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
               "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
               : SUMS_8(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ static inline void multiply_tiles(float (&d)[16][4], uint64_t a, uint64_t b, int add)
{
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
               "}, %64, %65, p, 1, 1, 0, 0; }"
               : SUMS_8(0), SUMS_8(8)
               : "l"(a), "l"(b), "r"(add));
}

__device__ static inline void multiply_registers(float (&d)[16][4], const uint32_t (&a)[4],
                                                 uint64_t b)
{
  asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
               "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
               : SUMS_8(0), SUMS_8(8)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Nothing that reads or writes these is moved over this place: the instructions above do not say
 * when they are done with registers. */
template <int N, int M> __device__ void hold(float (&x)[N][M])
{
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < M; j++)
      asm volatile("" : "+f"(x[i][j])::"memory");
}

template <int N, int M> __device__ void hold(uint32_t (&x)[N][M])
{
#pragma unroll
  for (int i = 0; i < N; i++)
#pragma unroll
    for (int j = 0; j < M; j++)
      asm volatile("" : "+r"(x[i][j])::"memory");
}

#undef SUMS_8
#undef SUMS_2

__device__ static inline uint32_t bf16_pair(float low, float high)
{
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ static inline float power_of_two(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif
