/* ref/kernels/torch_reduce.c for GPUs: a thread for each sum, which takes its terms one by one. */
#include "cuda/kernels/operands.cuh"

/* y[i] = factor (x[i w] + x[i w + 1] + ...), ascending, from 0; w: number of elements read over
 * number written. */
extern "C" void EXACT(sum)(cuda_call *c)
{
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  int64_t sums = elements_of(y), width = elements_of(x) / sums;
  float factor = scalar_of(c->of, 0);
  assert(sums * width == elements_of(x));
  for_each(
      c, sums, KERNEL_LAMBDA(int64_t i) {
        float sum = 0;
        for (int64_t k = 0; k < width; k++)
          sum += load(x, i * width + k);
        store(y, i, sum * factor);
      });
}

/* y[k] = x[0][k] + x[1][k] + ..., ascending, from 0; rows are as long as y. */
extern "C" void EXACT(column_sums)(cuda_call *c)
{
  tensor x = read_of(c->of, 0), y = write_of(c->of, 0);
  int64_t columns = elements_of(y), rows = elements_of(x) / columns;
  assert(rows * columns == elements_of(x));
  for_each(
      c, columns, KERNEL_LAMBDA(int64_t k) {
        float sum = 0;
        for (int64_t i = 0; i < rows; i++)
          sum += load(x, i * columns + k);
        store(y, k, sum);
      });
}

/* Reads gy, x, rstd; of each column the sum over rows, ascending, of gy (x rstd). */
extern "C" void EXACT(rmsnorm_gain)(cuda_call *c)
{
  tensor gy = read_of(c->of, 0), x = read_of(c->of, 1), rstd = read_of(c->of, 2),
         gain = write_of(c->of, 0);
  int64_t columns = elements_of(gain), rows = elements_of(gy) / columns;
  assert(c->of->read_count == 3 && elements_of(rstd) == rows);
  for_each(
      c, columns, KERNEL_LAMBDA(int64_t k) {
        float sum = 0;
        for (int64_t i = 0; i < rows; i++)
          sum += load(gy, i * columns + k) * (load(x, i * columns + k) * load(rstd, i));
        store(gain, k, sum);
      });
}
