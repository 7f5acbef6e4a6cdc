/* ref/kernels/elementwise.c for GPUs. */
#include <assert.h>

#include "cuda/kernels/tensor.cuh"

/* reads a, b, writes their sum. */
extern "C" void EXACT(add)(cuda_call *c)
{
  tensor a = c->of->reads[0], b = c->of->reads[1], y = c->of->writes[0];
  int64_t count = elements_of(y);
  assert(elements_of(a) == count && elements_of(b) == count);
  for_each(c, count, KERNEL_LAMBDA(int64_t i) { store(y, i, load(a, i) + load(b, i)); });
}
