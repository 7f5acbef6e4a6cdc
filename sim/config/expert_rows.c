#include "sim/config/expert_rows.h"

#include "sim/base/units.h"

enum { FACTOR_UNIT = 1000000 };

int64_t scaled_rows(int64_t n, double factor)
{
  int64_t units = (int64_t)(factor * FACTOR_UNIT + 0.5);
  int64_t rest = n % FACTOR_UNIT * units;

  return n / FACTOR_UNIT * units + (rest + FACTOR_UNIT - 1) / FACTOR_UNIT;
}

int64_t quantised_row_alignment(const settings *s)
{
  return s->training.fp8_recipe == FP8_RECIPE_MXFP8 ? 32 : 16;
}

/* Tokens of this rank at the router. */
static int64_t routed_tokens(const settings *s)
{
  const struct parallel_settings *p = &s->parallel;
  int64_t sequence = s->training.seq_length / p->context_parallel_size;

  if (p->sequence_parallel) {
    sequence /= p->tensor_model_parallel_size;
  }
  return sequence * s->training.micro_batch_size;
}

/* token_dispatcher.py, _HybridEPManager.setup_metadata, and experts.py, TEGroupedMLP. */
static_rows static_expert_rows(const settings *s)
{
  double factor = s->model.moe_expert_rank_capacity_factor;
  int64_t mean = routed_tokens(s) * s->model.moe_router_topk;
  static_rows rows = { 0 };

  if (factor <= 0 || s->model.moe_token_dispatcher_type != DISPATCHER_FLEX) {
    return rows;
  }
  rows.capacity = round_up((int64_t)((double)mean * factor), quantised_row_alignment(s));
  rows.mean = (int64_t)((double)rows.capacity / factor);
  rows.arriving = min_i64(rows.capacity, scaled_rows(mean, s->model.moe_imbalance) *
                                             s->parallel.expert_tensor_parallel_size);
  return rows;
}
