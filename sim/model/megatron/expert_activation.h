/* The activation between the two linears of an expert (Megatron-LM
 * core/transformer/moe/experts.py, core/transformer/mlp.py). */
#ifndef OFFSIM_SIM_MODEL_MEGATRON_EXPERT_ACTIVATION_H
#define OFFSIM_SIM_MODEL_MEGATRON_EXPERT_ACTIVATION_H

#include "sim/base/units.h"
#include "sim/model/megatron/moe.h"

typedef struct expert_rows {
  const settings *settings;
  const moe_sizes *sizes;
  int64_t rows;
  const char *site;
  tensor_id rows_of; /* see moe_dispatch */
} expert_rows;

/* Rows of a static buffer beyond its tokens cost only memory: kernels read the counts on the
 * device. */
static inline int64_t computed_rows(const moe_sizes *m, int64_t rows)
{
  return m->is_static ? m->computed : rows;
}

static inline int64_t wider_bytes(dtype a, dtype b)
{
  return max_i64(dtype_bytes(a), dtype_bytes(b));
}

/* Rows times their probability. Type promotion gives the product the type of the wider factor. */
tensor_id expert_weighted(graph *g, tensor_id x, tensor_id probs);

/* experts.py, bias_act_func and mlp.py: fused only for gated activations. */
tensor_id expert_activation(graph *g, const expert_rows *r, tensor_id x, tensor_id probs);

/* moe_apply_probs_on_input: the rows times their probability, which is then 1; x itself without. */
tensor_id moe_probs_on_input(graph *g, const expert_rows *r, tensor_id x, tensor_id *probs);

/* SequentialMLP: experts_sequential.c. */
tensor_id moe_sequential_mlp(graph *g, const settings *s, const moe_sizes *m,
                             const moe_dispatch *d);

#endif
