#include "cuda/kernels/fast/attention_own.h"
#include "cuda/kernels/tensor.cuh"

void attention_write_states(cuda_call *c, uint32_t first)
{
  int64_t seed = (int64_t)c->of->step->seed;
  for (uint32_t k = first; k < c->of->write_count; k++) {
    tensor state = c->of->writes[k];
    for_each(
        c, elements_of(state), KERNEL_LAMBDA(int64_t i) { store_int(state, i, seed); });
  }
}
