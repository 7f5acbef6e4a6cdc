/* ref/kernels/collectives.c for GPUs. */
#include <assert.h>

#include "cuda/kernels/tensor.cuh"

/* Every member's part, in the group's order, to all. */
extern "C" void EXACT(all_gather)(cuda_call *const *members, uint32_t count)
{
  for (uint32_t to = 0; to < count; to++)
    for (uint32_t from = 0; from < count; from++) {
      tensor part = members[from]->of->reads[0], whole = members[to]->of->writes[0];
      int64_t each = elements_of(part);
      for_each(members[0], each, KERNEL_LAMBDA(int64_t i) {
        copy_element(part, i, whole, from * each + i);
      });
    }
}
