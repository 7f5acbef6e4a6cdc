/* ref/kernels/torch_position.c for GPUs. */
#include "cuda/kernels/operands.cuh"

extern "C" void EXACT(rotary_angles)(cuda_call *c)
{
  enum { BASE, POSITIONS, WIDTH };
  tensor once = write_of(c->of, 0), twice = write_of(c->of, c->of->write_count - 1);
  int64_t positions = (int64_t)c->of->call->scalars[POSITIONS];
  int64_t width = (int64_t)c->of->call->scalars[WIDTH], half = width / 2;
  float base = scalar_of(c->of, BASE);
  bool doubles = c->of->write_count > 1;
  assert(2 * elements_of(once) == dim_of(c->of, 0));
  assert(!doubles || elements_of(twice) == dim_of(c->of, 0));
  for_each(
      c, elements_of(once), KERNEL_LAMBDA(int64_t k) {
        int64_t row = k / half, i = k % half;
        float power = exact_powf(base, (float)(2 * i) / (float)width);
        float angle = (float)(row % positions) * (1 / power);
        store(once, k, angle);
        if (!doubles) return;
        store(twice, row * width + i, angle);
        store(twice, row * width + half + i, angle);
      });
}

extern "C" void EXACT(rotary_polar)(cuda_call *c)
{
  tensor angles = read_of(c->of, 0), y = write_of(c->of, 0);
  for_each(
      c, elements_of(angles), KERNEL_LAMBDA(int64_t i) {
        float angle = load(angles, i);
        store(y, 2 * i, exact_cosf(angle));
        store(y, 2 * i + 1, exact_sinf(angle));
      });
}

/* (x0 + i x1) (y0 + i y1), or with -y1. */
extern "C" void EXACT(complex_multiply)(cuda_call *c)
{
  tensor x = read_of(c->of, 0), y = read_of(c->of, 1), to = write_of(c->of, 0);
  bool conjugate = scalar_of(c->of, 0) != 0;
  for_each(
      c, dim_of(c->of, 0) / 2, KERNEL_LAMBDA(int64_t i) {
        float x0 = load(x, 2 * i), x1 = load(x, 2 * i + 1);
        float y0 = load(y, 2 * i), y1 = load(y, 2 * i + 1);
        if (conjugate) y1 = -y1;
        store(to, 2 * i, x0 * y0 - x1 * y1);
        store(to, 2 * i + 1, x0 * y1 + x1 * y0);
      });
}

extern "C" void EXACT(position_scale)(cuda_call *c)
{
  enum { SCALE, LENGTH, FIRST };
  tensor y = write_of(c->of, 0);
  float scale = scalar_of(c->of, SCALE), length = scalar_of(c->of, LENGTH);
  float first = scalar_of(c->of, FIRST);
  for_each(
      c, dim_of(c->of, 0), KERNEL_LAMBDA(int64_t i) {
        int64_t whole = (int64_t)(((float)i + first) / length);
        store(y, i, 1 + scale * exact_logf((float)(1 + whole)));
      });
}

/* torch.finfo(type).min */
DEVICE static inline float lowest(int type)
{
  if (type == DTYPE_BF16) return -0x1.fep127f;
  if (type == DTYPE_FP16) return -0x1.ffcp15f;
  return -0x1.fffffep127f;
}

/* Rows of the sequences, one after the other: a row's position is its number modulo the number of
 * columns. */
extern "C" void EXACT(causal_mask)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), columns = dim_of(c->of, 1);
  tensor mask = write_of(c->of, 0);
  assert(elements_of(mask) == rows * columns);
  for_each(
      c, rows * columns, KERNEL_LAMBDA(int64_t i) {
        store(mask, i, i % columns <= i / columns % columns ? 0 : lowest(mask.type));
      });
}
