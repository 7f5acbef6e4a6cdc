/*
 * ref/kernels/norm.c for GPUs: backward. A thread for each column adds up the gradients of gamma
 * and beta, one for each row computes the sums of its gradient, one for each element writes it: the
 * gradient may overwrite x or gy.
 */
#include "cuda/kernels/operands.cuh"
#include "cuda/kernels/scratch.cuh"

/* The reads of backward. */
typedef struct norm_reads {
  tensor gy, x, rstd, mean, gamma;
  bool centres, zero_centred;
} norm_reads;

static norm_reads reads_of(const exec_call *c, bool centres)
{
  norm_reads n = { read_of(c, 0),
                   read_of(c, 1),
                   read_of(c, 2),
                   read_of(c, centres ? 3 : 2),
                   read_of(c, c->read_count - 1),
                   centres,
                   scalar_of(c, 0) != 0 };
  assert(c->read_count == 4 + (uint32_t)centres);
  return n;
}

DEVICE static inline float gamma_of(const norm_reads &n, int64_t column)
{
  float gamma = load(n.gamma, column);
  return n.zero_centred ? gamma + 1 : gamma;
}

DEVICE static inline float normalised(const norm_reads &n, int64_t row, int64_t i)
{
  return (load(n.x, i) - (n.centres ? load(n.mean, row) : 0)) * load(n.rstd, row);
}

static void add_columns(cuda_call *c, norm_reads n, int64_t rows, int64_t h)
{
  bool has_gamma = c->of->write_count > 1, has_beta = c->of->write_count > 2;
  tensor of_gamma = write_of(c->of, has_gamma ? 1 : 0), of_beta = write_of(c->of, has_beta ? 2 : 0);
  if (!has_gamma) return;
  for_each(
      c, h, KERNEL_LAMBDA(int64_t k) {
        float ggamma = 0, gbeta = 0;
        for (int64_t r = 0; r < rows; r++) {
          float gy = load(n.gy, r * h + k);
          ggamma += gy * normalised(n, r, r * h + k);
          gbeta += gy;
        }
        store(of_gamma, k, ggamma);
        if (has_beta) store(of_beta, k, gbeta);
      });
}

typedef struct row_numbers {
  float *mean, *slope; /* [rows] */
} row_numbers;

static row_numbers take_numbers(scratch_arena *a, int64_t rows)
{
  row_numbers of;
  of.mean = take<float>(a, rows);
  of.slope = take<float>(a, rows);
  return of;
}

extern "C" int64_t EXACT(norm_backward_scratch)(const exec_call *c)
{
  scratch_arena a = arena_of_nothing();
  (void)take_numbers(&a, dim_of(c, 0));
  return a.used;
}

/* reads gy, x, rstd[, mean], gamma, writes gx[, ggamma[, gbeta]]: frozen parameters have none.
 * gx = rstd (g - [mean(g)] - x mean(g x)), g = gy gamma, x normalised. */
static void backward(cuda_call *c, bool centres)
{
  scratch_arena room = arena_of(c);
  int64_t rows = dim_of(c->of, 0), h = dim_of(c->of, 1);
  norm_reads n = reads_of(c->of, centres);
  row_numbers of = take_numbers(&room, rows);
  tensor gx = write_of(c->of, 0);
  add_columns(c, n, rows, h);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t r) {
        float sum = 0, product = 0;
        for (int64_t i = 0; i < h; i++) {
          float g = load(n.gy, r * h + i) * gamma_of(n, i);
          sum += g;
          product += g * normalised(n, r, r * h + i);
        }
        of.mean[r] = centres ? sum / (float)h : 0;
        of.slope[r] = product / (float)h;
      });
  for_each(
      c, rows * h, KERNEL_LAMBDA(int64_t i) {
        int64_t r = i / h;
        float g = load(n.gy, i) * gamma_of(n, i % h);
        store(gx, i, load(n.rstd, r) * (g - of.mean[r] - normalised(n, r, i) * of.slope[r]));
      });
}

extern "C" void EXACT(rmsnorm_backward)(cuda_call *c)
{
  backward(c, false);
}

extern "C" void EXACT(layernorm_backward)(cuda_call *c)
{
  backward(c, true);
}

/* gx = rstd (gy - x mean(gy x)), x normalised; reads gy, x, rstd. A thread for each row. */
extern "C" void EXACT(unscaled_norm_backward)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), h = dim_of(c->of, 1);
  tensor gy = read_of(c->of, 0), x = read_of(c->of, 1), kept = read_of(c->of, 2);
  tensor gx = write_of(c->of, 0);
  for_each(
      c, rows, KERNEL_LAMBDA(int64_t r) {
        float rstd = load(kept, r), product = 0;
        for (int64_t i = r * h; i < (r + 1) * h; i++)
          product += load(gy, i) * (load(x, i) * rstd);
        float slope = product / (float)h;
        for (int64_t i = r * h; i < (r + 1) * h; i++)
          store(gx, i, rstd * (load(gy, i) - load(x, i) * rstd * slope));
      });
}
