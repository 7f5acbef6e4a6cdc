#include "sim/predict/uneven_load.h"

bool load_is_uneven(const settings *s)
{
  const struct model_settings *m = &s->model;
  return m->num_experts > 0 && s->parallel.expert_model_parallel_size > 1 &&
         !m->moe_pad_expert_input_to_capacity && m->moe_expert_rank_capacity_factor == 0;
}

const int64_t *uneven_load_growth(const prediction *p, arena *a)
{
  if (!load_is_uneven(p->settings) || p->plans != NULL) return NULL;
  settings more = *p->settings;
  more.model.moe_imbalance *= 1 + UNEVEN_PERCENT / 100.0;
  prediction with_more;
  diag d = { .quiet = true };
  int64_t *growth = NULL;
  if (predict_alone(&with_more, &more, p->machine, a, &d)) {
    growth = ARENA_ARRAY(a, int64_t, p->rank_count);
    for (uint32_t i = 0; i < p->rank_count; i++)
      growth[i] =
          with_more.result.ranks[i].allocated_peak_bytes - p->result.ranks[i].allocated_peak_bytes;
  }
  prediction_release(&with_more);
  return growth;
}
