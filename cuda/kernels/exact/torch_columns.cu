/* ref/kernels/torch_columns.c for GPUs: a thread for each element. */
#include "cuda/kernels/operands.cuh"

extern "C" void EXACT(topk)(cuda_call *c)
{
  int64_t columns = dim_of(c->of, 1), k = dim_of(c->of, 2);
  tensor x = read_of(c->of, 0), values = write_of(c->of, 0), places = write_of(c->of, 1);
  for_each(
      c, dim_of(c->of, 0) * columns, KERNEL_LAMBDA(int64_t i) {
        int64_t row = i / columns, own = i % columns, before = 0;
        float mine = load(x, i);
        for (int64_t j = 0; j < columns; j++) {
          float other = load(x, row * columns + j);
          before += other > mine || (other == mine && j < own);
        }
        if (before >= k) return;
        store(values, row * k + before, mine);
        store_int(places, row * k + before, own);
      });
}

extern "C" void EXACT(scatter_columns)(cuda_call *c)
{
  int64_t columns = dim_of(c->of, 1), k = dim_of(c->of, 2);
  tensor x = read_of(c->of, 0), places = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, 0) * k,
      KERNEL_LAMBDA(int64_t i) { store(y, i / k * columns + load_int(places, i), load(x, i)); });
}

extern "C" void EXACT(gather_columns)(cuda_call *c)
{
  int64_t columns = dim_of(c->of, 1), k = dim_of(c->of, 2);
  tensor x = read_of(c->of, 0), places = read_of(c->of, 1), y = write_of(c->of, 0);
  for_each(
      c, dim_of(c->of, 0) * k,
      KERNEL_LAMBDA(int64_t i) { store(y, i, load(x, i / k * columns + load_int(places, i))); });
}
