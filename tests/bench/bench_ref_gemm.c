/*
 * How fast the reference executor multiplies matrices: with each path of the machine, each type,
 * one thread and two. Beside it a plain triple loop, and the machine's peak: what it does when all
 * operands are registers. A product and its sum are two operations; nothing fuses them. One line a
 * setting:
 *
 *     path      type  size  threads   GFLOP/s   of peak   times the loop
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ref/kernels/gemm.h"
#include "ref/kernels/gemm_tile.h"
#include "ref/kernels/storage.h"
#include "ref/kernels/threads.h"

enum { LOOP_SIZE = 512, REPEATS = 10 };

/* One thread by the time that it had the processor, as other programs run too; several by the clock
 * on the wall. */
static double seconds(uint32_t threads)
{
  struct timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the machine's peak --------------------------------------------------------------------- */

enum { CHAINS = 12, PEAK_TIMES = 200000, PEAK_REPEATS = 50 };

/* Independent chains, enough to hide how long an operation takes. Returns GFLOP/s; `x` keeps the
 * compiler from knowing the numbers. */
#define DEFINE_PEAK(name, bytes)                                                                   \
  static double name(real x)                                                                       \
  {                                                                                                \
    typedef real vector __attribute__((vector_size(bytes)));                                       \
    vector s[CHAINS], factor = (vector){ 0 } + x, term = (vector){ 0 } + (1 - x);                  \
    for (int i = 0; i < CHAINS; i++)                                                               \
      s[i] = factor + (real)i;                                                                     \
    double start = seconds(1);                                                                     \
    for (int64_t t = 0; t < PEAK_TIMES; t++)                                                       \
      for (int i = 0; i < CHAINS; i++)                                                             \
        s[i] = s[i] * factor + term;                                                               \
    double time = seconds(1) - start;                                                              \
    volatile real kept = 0;                                                                        \
    for (int i = 0; i < CHAINS; i++)                                                               \
      kept = kept + s[i][0];                                                                       \
    return 2e-9 * PEAK_TIMES * CHAINS * (bytes / (double)sizeof(real)) / time;                     \
  }

DEFINE_PEAK(peak_16_bytes, 16)
#if defined(__x86_64__)
__attribute__((target("avx2"))) DEFINE_PEAK(peak_32_bytes, 32) __attribute__((target("avx512f")))
DEFINE_PEAK(peak_64_bytes, 64)
#endif

    static double peak_once(const gemm_path *path)
{
  volatile real x = (real)0.5;
#if defined(__x86_64__)
  if (strcmp(path->name, "avx512") == 0) return peak_64_bytes(x);
  if (strcmp(path->name, "avx2") == 0) return peak_32_bytes(x);
#endif
  return peak_16_bytes(x);
}

/* Other programs run too: the best of many. */
static double peak_gflops(const gemm_path *path)
{
  double best = 0;
  for (int i = 0; i < PEAK_REPEATS; i++) {
    double gflops = peak_once(path);
    if (gflops > best) best = gflops;
  }
  return best;
}

/* ---- products ------------------------------------------------------------------------------- */

static ref_matrix matrix(dtype type, int64_t size)
{
  ref_matrix m = { malloc((size_t)(size * size * dtype_bytes(type))), type, size, 1 };
  if (m.data == NULL) abort();
  exec_tensor t = { m.data, (uint8_t)type, 1, { size * size }, { 1 } };
  for (int64_t i = 0; i < size * size; i++)
    ref_store(&t, i, (real)(i * 7 % 31 - 15) / 16);
  return m;
}

/* The forward of a linear: b is transposed. */
static ref_product product(dtype type, int64_t size)
{
  return (ref_product){ .m = size,
                        .n = size,
                        .k = size,
                        .a = matrix(type, size),
                        .b = ref_transposed(matrix(type, size)),
                        .c = matrix(type, size) };
}

static void release(ref_product *p)
{
  free(p->a.data);
  free(p->b.data);
  free(p->c.data);
}

/* The naive loop, for comparison; fp32 only. */
static void triple_loop(const ref_product *p)
{
  const float *a = p->a.data, *b = p->b.data;
  float *c = p->c.data;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      float sum = 0;
      for (int64_t k = 0; k < p->k; k++)
        sum += a[i * p->k + k] * b[j * p->k + k];
      c[i * p->n + j] = sum;
    }
}

static double best_gflops(void (*multiply)(const ref_product *), const ref_product *p)
{
  double best = 0;
  for (int i = 0; i < REPEATS; i++) {
    double start = seconds(ref_threads());
    multiply(p);
    double gflops = 2e-9 * (double)(p->m * p->n * p->k) / (seconds(ref_threads()) - start);
    if (gflops > best) best = gflops;
  }
  return best;
}

static void measure(const gemm_path *path, dtype type, int64_t size, double peak, double loop)
{
  ref_product p = product(type, size);
  gemm_choose_path(path);
  for (uint32_t threads = 1; threads <= 2; threads++) {
    ref_set_threads(threads);
    double gflops = best_gflops(ref_gemm_part, &p);
    printf("%-8s  %-4s  %5lld  %7u  %8.1f  %7.0f%%  %15.1f\n", path->name, dtype_name(type),
           (long long)size, threads, gflops, 100 * gflops / (peak * threads), gflops / loop);
  }
  release(&p);
}

int main(void)
{
  ref_product p = product(DTYPE_FP32, LOOP_SIZE);
  double loop = best_gflops(triple_loop, &p);
  release(&p);
  printf("triple loop, fp32, %d: %.2f GFLOP/s\n", LOOP_SIZE, loop);
  for (uint32_t i = 0; i < gemm_path_count(); i++) {
    const gemm_path *path = gemm_path_at(i);
    double peak = peak_gflops(path);
    printf("%s: peak of one core %.1f GFLOP/s\n", path->name, peak);
    printf("path      type   size  threads   GFLOP/s   of peak   times the loop\n");
    for (int64_t size = 256; size <= 1024; size *= 2) {
      measure(path, DTYPE_FP32, size, peak, loop);
      measure(path, DTYPE_BF16, size, peak, loop);
    }
  }
  return 0;
}
