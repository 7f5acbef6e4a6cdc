#include "sim/graph/host_experts.h"

#include <assert.h>

int64_t host_experts_of_chunk(const settings *s)
{
  int64_t local = s->model.num_experts / s->parallel.expert_model_parallel_size;
  assert(local % s->offload.moe_offloading_num_chunks == 0);
  return local / s->offload.moe_offloading_num_chunks;
}

const char *host_experts_buffer(int32_t layer, bool second, arena *a)
{
  assert(layer >= 0);
  return arena_printf(a, "experts%d_gpu_buffers.%d", second ? 2 : 1, (int)layer);
}
