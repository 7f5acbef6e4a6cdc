/*
 * The parameters of one pipeline rank: every trainable tensor of its virtual chunks, in the order
 * in which Megatron-LM's modules register them (the order of named_parameters, which the gradient
 * buffers reverse).
 *
 * Sources (Megatron-LM d98e8a64): models/gpt/gpt_model.py (embedding, decoder, mtp, output
 * layer), transformer/transformer_layer.py, attention.py and multi_latent_attention.py (the core
 * and the output projection are built before the input projections), moe/moe_layer.py (router,
 * experts, shared experts), multi_token_prediction.py; TransformerEngine
 * module/layernorm_linear.py (the norm's parameters precede the weight) and
 * module/grouped_linear.py (one tensor per local expert).
 *
 * Sizes are elements. A list lives in the arena it was built in.
 */
#ifndef OFFSIM_SIM_RESIDENTS_PARAMETERS_H
#define OFFSIM_SIM_RESIDENTS_PARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/config/settings.h"
#include "sim/plan/plan.h"

typedef enum parameter_role {
  PARAMETER_WEIGHT,    /* a matrix; position embeddings too */
  PARAMETER_VECTOR,    /* a bias or a norm's gain or offset */
  PARAMETER_EMBEDDING, /* word embedding */
  PARAMETER_OUTPUT     /* weight of the output layer */
} parameter_role;

typedef struct parameter {
  const char *name;       /* "self_attention.linear_qkv.weight", below its layer */
  int32_t layer;          /* 0-based over the model, MTP layers follow; -1 outside the layers */
  uint32_t chunk;         /* virtual stage of this rank */
  uint32_t expert;        /* routed experts: index among this rank's experts, else 0 */
  uint8_t role;           /* parameter_role */
  uint8_t type;           /* dtype */
  uint8_t rank;           /* dimensions used */
  int8_t split_dimension; /* dimension that tensor parallel ranks split, -1: every rank has all of
                             it */
  uint8_t split_parts; /* the split dimension is this many tensors that are split each (gated: 2) */
  bool is_expert;      /* a routed expert's */
  bool
      is_expert_parallel; /* ... reduced over expert data parallel ranks, with buffers and an optimizer of
                              its own */
  bool is_linear;         /* weight of a linear module, not the router's or a gate */
  bool shared_embedding;  /* one weight on two stages: it has its own gradient bucket */
  bool sequence_parallel; /* its gradient is summed over tensor parallel ranks: each has seen a part
                             of the sequence, or of the heads */
  int64_t shape[2];       /* of this rank */
  int64_t global_shape[2]; /* over tensor parallel ranks */
} parameter;

/* Groups of the optimizer, in order. Expert parallel parameters have an optimizer of their own, after the
 * dense one; in each, the group without weight decay (vectors) comes last. Megatron-LM sorts groups so since
 * 2026-01-07; before, the group of the rank's first parameter came first, mostly a matrix. */
enum { OPTIMIZER_GROUPS = 4 };
static inline uint32_t optimizer_group_of(const parameter *p)
{
  return (p->is_expert_parallel ? 2U : 0U) + (p->role == PARAMETER_VECTOR ? 1U : 0U);
}
static inline bool optimizer_group_decays(uint32_t group)
{
  return group % 2 == 0;
}

typedef struct parameter_list {
  parameter *items;
  uint32_t count;
} parameter_list;

int64_t parameter_elements(const parameter *p);

/* Grouped experts are Transformer Engine's, with a tensor for each expert; before its 1.9 they were
 * Megatron's own, with one tensor for all local experts, and CUTLASS's GEMM. */
bool experts_are_grouped_by_te(const settings *s);

/* All chunks of `pp_rank`, ascending by chunk. Settings must be resolved. */
parameter_list parameters_of_rank(const settings *s, uint32_t pp_rank, arena *a);

#endif
