/* ref/kernels/elementwise.c for GPUs: biases of rows. */
#include "cuda/kernels/operands.cuh"

/* reads x [rows, h], bias [h], writes x + bias. */
extern "C" void EXACT(bias_add)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), h = dim_of(c->of, 1);
  tensor x = read_of(c->of, 0), bias = read_of(c->of, 1), y = write_of(c->of, 0);
  assert(elements_of(x) == rows * h && elements_of(bias) == h);
  for_each(
      c, rows * h, KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i) + load(bias, i % h)); });
}

/* reads gy [rows, h], writes its sum over rows, ascending. */
extern "C" void EXACT(bias_grad)(cuda_call *c)
{
  int64_t rows = dim_of(c->of, 0), h = dim_of(c->of, 1);
  tensor gy = read_of(c->of, 0), gradient = write_of(c->of, 0);
  assert(elements_of(gy) == rows * h && elements_of(gradient) == h);
  for_each(
      c, h, KERNEL_LAMBDA(int64_t i) {
        float sum = 0;
        for (int64_t r = 0; r < rows; r++)
          sum += load(gy, r * h + i);
        store(gradient, i, sum);
      });
}
