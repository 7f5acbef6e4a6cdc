/*
 * Which rows of the plan's table have fast kernels, and the functions of each:
 *
 *   fast_NAME          launches (cuda_kernel)
 *   fast_suits_NAME    whether it can do a call; it looks at nothing but the call
 *   fast_scratch_NAME  scratch memory that it needs, for those of FAST_SCRATCH
 *
 * A kernel that serves several rows has suits and scratch for each. In the order of
 * sim/plan/kernels.h.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FUNCTIONS_H
#define OFFSIM_CUDA_KERNELS_FAST_FUNCTIONS_H

#include "cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
/* Bound by memory. */
#define FAST_MEMORY_KERNELS(X)                              \
  X(EMBEDDING_FORWARD,            embedding_forward) \
  X(EMBEDDING_BACKWARD,           embedding_backward) \
  X(LAYERNORM_FORWARD,            layernorm_forward) \
  X(LAYERNORM_BACKWARD,           layernorm_backward) \
  X(RMSNORM_FORWARD,              rmsnorm_forward) \
  X(RMSNORM_BACKWARD,             rmsnorm_backward) \
  X(BIAS_ADD,                     bias_add) \
  X(BIAS_GRAD,                    column_sums) \
  X(ROPE_FORWARD,                 rope_forward) \
  X(ROPE_BACKWARD,                rope_backward) \
  X(ROPE_PRODUCT,                 rope_product) \
  X(ROPE_NEGATED_HALF,            rope_negated_half) \
  X(ROPE_ROTATED_HALF,            rope_rotated_half) \
  X(ROPE_JOIN,                    rope_join) \
  X(MLA_KEY_VALUE_FORWARD,        mla_key_value_forward) \
  X(MLA_KEY_VALUE_BACKWARD,       mla_key_value_backward) \
  X(SOFTMAX_FORWARD,              softmax_forward) \
  X(SOFTMAX_BACKWARD,             softmax_backward) \
  X(CAUSAL_SOFTMAX_FORWARD,       causal_softmax_forward) \
  X(CAUSAL_SOFTMAX_BACKWARD,      causal_softmax_backward) \
  X(JOIN,                         join) \
  X(REPEAT_FORWARD,               repeat_forward) \
  X(REPEAT_BACKWARD,              repeat_backward) \
  X(DROPOUT_FORWARD,              dropout_forward) \
  X(DROPOUT_BACKWARD,             dropout_backward) \
  X(BIAS_DROPOUT_ADD_FORWARD,     bias_dropout_add_forward) \
  X(BIAS_DROPOUT_ADD_BACKWARD,    dropout_backward) \
  X(ACTIVATION_FORWARD,           activation_forward) \
  X(ACTIVATION_BACKWARD,          activation_backward) \
  X(ADD,                          add) \
  X(FILL,                         fill) \
  X(OWN_PART,                     own_part) \
  X(COPY,                         copy) \
  X(ADD_STRIDED,                  add) \
  X(COPY_STRIDED,                 copy) \
  X(MULTIPLY,                     multiply) \
  X(MULTIPLY_STRIDED,             multiply) \
  X(SCALE,                        scale) \
  X(DIVIDE,                       divide) \
  X(DIVIDE_STRIDED,               divide) \
  X(ADD_NUMBER,                   add_number) \
  X(SQUARE,                       square) \
  X(CUBE,                         cube) \
  X(RSQRT,                        rsqrt) \
  X(NEGATE_STRIDED,               negate) \
  X(COSINE,                       cosine) \
  X(SINE,                         sine) \
  X(SILU_FORWARD,                 silu_forward) \
  X(SILU_FORWARD_STRIDED,         silu_forward) \
  X(SILU_BACKWARD,                silu_backward) \
  X(SILU_BACKWARD_STRIDED,        silu_backward) \
  X(SUM,                          sum) \
  X(COLUMN_SUMS,                  column_sums) \
  X(LOG_SOFTMAX_FORWARD,          log_softmax_forward) \
  X(LOG_SOFTMAX_BACKWARD,         log_softmax_backward) \
  X(NLL_FORWARD,                  nll_forward) \
  X(LOG_PROBS_FORWARD,            log_probs_forward) \
  X(LOG_PROBS_BACKWARD,           log_probs_backward) \
  X(RMSNORM_GAIN,                 rmsnorm_gain) \
  X(GATED_SILU_FORWARD,           gated_silu_forward) \
  X(GATED_SILU_BACKWARD,          gated_silu_backward) \
  X(ROWS_CROSS_ENTROPY,           rows_cross_entropy) \
  X(CROSS_ENTROPY_MAXIMA,         cross_entropy_maxima) \
  X(CROSS_ENTROPY_SUMS,           cross_entropy_sums) \
  X(CROSS_ENTROPY_LOSS,           cross_entropy_loss) \
  X(CROSS_ENTROPY_BACKWARD,       cross_entropy_backward) \
  X(ONLINE_SOFTMAX,               online_softmax) \
  X(FUSED_CROSS_ENTROPY,          fused_cross_entropy) \
  X(SCALE_ROWS,                   scale_rows) \
  X(OPTIMIZER_STEP,               optimizer_step)

#define FAST_MEMORY_SCRATCH(X) \
  X(EMBEDDING_BACKWARD,           embedding_backward) \
  X(LAYERNORM_BACKWARD,           layernorm_backward) \
  X(RMSNORM_BACKWARD,             rmsnorm_backward) \
  X(BIAS_GRAD,                    column_sums) \
  X(ROPE_FORWARD,                 rope_forward) \
  X(ROPE_BACKWARD,                rope_backward) \
  X(ROPE_PRODUCT,                 rope_product) \
  X(MLA_KEY_VALUE_FORWARD,        mla_key_value_forward) \
  X(MLA_KEY_VALUE_BACKWARD,       mla_key_value_backward) \
  X(COLUMN_SUMS,                  column_sums) \
  X(RMSNORM_GAIN,                 rmsnorm_gain) \
  X(ROWS_CROSS_ENTROPY,           rows_cross_entropy)

/* Of experts, and what chooses them. */
#define FAST_MOE_KERNELS(X) \
  X(ROUTER_FORWARD,               router_forward) \
  X(ROUTER_BACKWARD,              router_backward) \
  X(ROUTER_TOPK_FORWARD,          router_topk_forward) \
  X(ROUTER_AUX_FORWARD,           router_aux_forward) \
  X(ROUTER_AUX_BACKWARD,          router_aux_backward) \
  X(MOE_PERMUTE_FORWARD,          moe_permute_forward) \
  X(MOE_PERMUTE_BACKWARD,         moe_permute_backward) \
  X(PERMUTE,                      permute) \
  X(UNPERMUTE,                    unpermute) \
  X(MOE_SORT_CHUNKS_FORWARD,      moe_sort_chunks_forward) \
  X(MOE_SORT_CHUNKS_BACKWARD,     moe_sort_chunks_backward) \
  X(WEIGHTED_ACTIVATION_FORWARD,  weighted_activation_forward) \
  X(WEIGHTED_ACTIVATION_BACKWARD, weighted_activation_backward)

#define FAST_MOE_SCRATCH(X) \
  X(MOE_PERMUTE_FORWARD,          moe_permute_forward) \
  X(MOE_PERMUTE_BACKWARD,         moe_permute_backward) \
  X(PERMUTE,                      permute) \
  X(UNPERMUTE,                    unpermute)

/* the row                      its functions */
#define FAST_KERNELS(X)         \
  X(GEMM,                       gemm)          \
  X(GROUPED_GEMM,               grouped_gemm)  \
  X(SCALED_GEMM,                gemm) \
  X(LINEAR_CROSS_ENTROPY_FORWARD, linear_cross_entropy) \
  X(LINEAR_CROSS_ENTROPY_BACKWARD, linear_cross_entropy) \
  X(ATTENTION_FORWARD,          attention_forward) \
  X(ATTENTION_BACKWARD,         attention_backward) \
  FAST_MEMORY_KERNELS(X)        \
  FAST_MOE_KERNELS(X)

#define FAST_SCRATCH(X)         \
  X(GEMM,                       gemm)          \
  X(GROUPED_GEMM,               grouped_gemm)  \
  X(SCALED_GEMM,                gemm) \
  X(LINEAR_CROSS_ENTROPY_FORWARD, linear_cross_entropy) \
  X(LINEAR_CROSS_ENTROPY_BACKWARD, linear_cross_entropy) \
  X(ATTENTION_FORWARD,          attention_forward) \
  X(ATTENTION_BACKWARD,         attention_backward) \
  FAST_MEMORY_SCRATCH(X)        \
  FAST_MOE_SCRATCH(X)
/* Libraries (cuBLASLt, cuDNN) load code of their own for these. */
#define FAST_BY_LIBRARY(X)      \
  X(GEMM)                       \
  X(SCALED_GEMM)                \
  X(LINEAR_CROSS_ENTROPY_FORWARD) \
  X(LINEAR_CROSS_ENTROPY_BACKWARD) \
  X(ATTENTION_FORWARD)          \
  X(ATTENTION_BACKWARD)
/* clang-format on */

typedef bool fast_suits(const exec_call *c);

#define FAST_PROTOTYPES(row, name)                                                                 \
  fast_suits fast_suits_##name;                                                                    \
  cuda_kernel fast_##name;
FAST_KERNELS(FAST_PROTOTYPES)
#define FAST_SCRATCH_PROTOTYPE(row, name) cuda_scratch fast_scratch_##name;
FAST_SCRATCH(FAST_SCRATCH_PROTOTYPE)

#ifdef __cplusplus
}
#endif

#endif
