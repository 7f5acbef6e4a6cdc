/* ref/kernels/torch_position.c for GPUs. */
#include "cuda/kernels/operands.cuh"

extern "C" void EXACT(rotary_angles)(cuda_call *c)
{
  enum { BASE, POSITIONS, WIDTH };
  tensor once = write_of(c->of, 0), twice = write_of(c->of, 1);
  int64_t positions = (int64_t)c->of->call->scalars[POSITIONS];
  int64_t width = (int64_t)c->of->call->scalars[WIDTH], half = width / 2;
  float base = scalar_of(c->of, BASE);
  assert(elements_of(twice) == dim_of(c->of, 0) && 2 * elements_of(once) == dim_of(c->of, 0));
  for_each(
      c, elements_of(once), KERNEL_LAMBDA(int64_t k) {
        int64_t row = k / half, i = k % half;
        float power = exact_powf(base, (float)(2 * i) / (float)width);
        float angle = (float)(row % positions) * (1 / power);
        store(once, k, angle);
        store(twice, row * width + i, angle);
        store(twice, row * width + half + i, angle);
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
