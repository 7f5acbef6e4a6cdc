/*
 * Which attention runs: what Transformer Engine's get_attention_backend picks, or Megatron's own.
 */
#ifndef OFFSIM_SIM_GRAPH_ATTENTION_BACKEND_H
#define OFFSIM_SIM_GRAPH_ATTENTION_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/config/settings.h"

typedef enum attention_backend {
  ATTENTION_BACKEND_FLASH,   /* flash-attn: copies to [batch, sequence, ...], which it saves */
  ATTENTION_BACKEND_FUSED,   /* cuDNN: works on [sequence, batch, ...] as it comes */
  ATTENTION_BACKEND_UNFUSED, /* TE's products and softmax */
  ATTENTION_BACKEND_LOCAL    /* Megatron's products and softmax */
} attention_backend;

/* qk_dim and v_dim: widths of a query/key and of a value head; `slides`: the layer has a sliding window. */
attention_backend attention_backend_of(const settings *s, int64_t qk_dim, int64_t v_dim,
                                       bool slides);

/* Whether a layer of Megatron-LM's model attends by PyTorch's matrix products and a softmax. */
bool attends_in_parts(const settings *s);

#endif
