/*
 * ref/kernels/norm.c for GPUs: forward. A thread for each row adds it up, then one for each element
 * writes it.
 */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

typedef struct row_numbers {
  float *mean, *rstd; /* [rows] */
} row_numbers;

static row_numbers take_numbers(scratch_arena *a, int64_t rows)
{
  row_numbers of;
  of.mean = take<float>(a, rows);
  of.rstd = take<float>(a, rows);
  return of;
}

extern "C" int64_t EXACT(norm_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_numbers(&a, dim_of(c, 0));
  return a.used;
}

DEVICE static inline float mean_of(const tensor &x, int64_t first, int64_t h)
{
  float sum = 0;
  for (int64_t i = 0; i < h; i++)
    sum += load(x, first + i);
  return sum / (float)h;
}

/* 1 / sqrt(mean of (x - mean)^2 + epsilon). */
DEVICE static inline float rstd_of(const tensor &x, int64_t first, int64_t h, float mean,
                                   float epsilon)
{
  float sum = 0;
  for (int64_t i = 0; i < h; i++) {
    float apart = load(x, first + i) - mean;
    sum += apart * apart;
  }
  return exact_rsqrtf(sum / (float)h + epsilon);
}

static void keep(cuda_call *c, const float *numbers, uint32_t write)
{
  if (write >= c->of->write_count) return;
  tensor to = write_of(c->of, write);
  for_each(
      c, dim_of(c->of, 0), KERNEL_LAMBDA(int64_t r) { store(to, r, numbers[r]); });
}

/* y = (x - mean) rstd gamma [+ beta]; reads x, gamma[, beta], writes y[, rstd][, mean]; RMSNorm has
 * neither mean nor beta. */
static void forward(cuda_call *c, bool centres)
{
  scratch_arena room = arena_of(c);
  int64_t rows = dim_of(c->of, 0), h = dim_of(c->of, 1);
  float epsilon = scalar_of(c->of, 0);
  bool zero_centred = scalar_of(c->of, 1) != 0;
  tensor x = read_of(c->of, 0), gamma = read_of(c->of, 1), y = write_of(c->of, 0);
  tensor beta = read_of(c->of, centres ? 2 : 1);
  row_numbers of = take_numbers(&room, rows);
  assert(c->of->read_count == 2 + (uint32_t)centres && elements_of(x) == rows * h);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t r) {
        float mean = centres ? mean_of(x, r * h, h) : 0;
        of.mean[r] = mean;
        of.rstd[r] = rstd_of(x, r * h, h, mean, epsilon);
      });
  for_each(
      c, rows * h, KERNEL_LAMBDA(int64_t i) {
        int64_t r = i / h, k = i % h;
        float factor = load(gamma, k);
        if (zero_centred) factor += 1;
        float value = (load(x, i) - of.mean[r]) * of.rstd[r] * factor;
        store(y, i, centres ? value + load(beta, k) : value);
      });
  keep(c, of.rstd, 1);
  if (centres) keep(c, of.mean, 2);
}

extern "C" void EXACT(rmsnorm_forward)(cuda_call *c)
{
  forward(c, false);
}

extern "C" void EXACT(layernorm_forward)(cuda_call *c)
{
  forward(c, true);
}

/* y = x rstd; reads x, writes y, rstd. A thread for each row. */
extern "C" void EXACT(unscaled_norm_forward)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), h = dim_of(c->of, 1);
  float epsilon = scalar_of(c->of, 0);
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0), kept = write_of(c->of, 1);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t r) {
        float rstd = rstd_of(x, r * h, h, 0, epsilon);
        for (int64_t i = r * h; i < (r + 1) * h; i++)
          store(y, i, load(x, i) * rstd);
        store(kept, r, rstd);
      });
}
