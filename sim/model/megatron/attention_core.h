/* Core attention, from query, key and value to the context. */
#ifndef OFFSIM_SIM_MODEL_MEGATRON_ATTENTION_CORE_H
#define OFFSIM_SIM_MODEL_MEGATRON_ATTENTION_CORE_H

#include "sim/graph/attention_backend.h"
#include "sim/model/megatron/modules.h"

/* Query, key and value are [length, batch, heads or kv_heads, width]; counts are this rank's. */
typedef struct attention_operands {
  tensor_id query, key, value;
  int64_t length, batch;
  int64_t heads, kv_heads;
  int64_t qk_dim, v_dim;
} attention_operands;

/* `x` itself, or a contiguous copy. */
tensor_id contiguous(graph *g, const char *name, tensor_id x);

/* The context [length, batch, heads x v_dim]. */
tensor_id core_attention(graph *g, const settings *s, const attention_operands *operands);

/* The same between the markers of group core_attn, recomputed if the settings say so. Keeps
 * query, key and value for the frame of Attention.forward. */
tensor_id core_attention_module(graph *g, const settings *s, const attention_operands *operands);

/* x with `width` columns of every head rotated: [sequence, batch, heads, ..]. */
tensor_id rotary_embedding(graph *g, const settings *s, const char *name, tensor_id x,
                           int64_t width);

/* Output projection between the markers of group attn_proj. */
module_output attention_projection(graph *g, const settings *s, tensor_id context);

#endif
