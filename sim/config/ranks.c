/* The global ranks of a pipeline rank. */
#include <assert.h>

#include "sim/config/settings.h"

int64_t settings_global_ranks(const settings *s, int64_t pp_rank, int64_t *ranks)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t pp = p->pipeline_model_parallel_size;
  int64_t count = p->world_size / pp;
  int64_t inner =
      p->use_tp_pp_dp_mapping ? p->tensor_model_parallel_size * p->context_parallel_size : count;

  assert(pp_rank >= 0 && pp_rank < pp && count % inner == 0);
  if (ranks != NULL) {
    for (int64_t i = 0; i < count; i++) {
      ranks[i] = (i / inner * pp + pp_rank) * inner + i % inner;
    }
  }
  return count;
}
