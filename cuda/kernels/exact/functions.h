/*
 * Which rows of the plan's tables have exact arithmetic for GPUs, and the functions of each: one that
 * launches, and one that says how much scratch memory it needs (NULL: none). In the order of
 * ref/kernels/functions.h.
 */
#ifndef OFFSIM_CUDA_KERNELS_EXACT_FUNCTIONS_H
#define OFFSIM_CUDA_KERNELS_EXACT_FUNCTIONS_H

#include "cuda/kernels/kernel.h"

/* clang-format off */
#define EXACT_KERNELS(X)                                          \
  X(EMBEDDING_FORWARD,             embedding_forward)             \
  X(EMBEDDING_BACKWARD,            embedding_backward)            \
  X(LAYERNORM_FORWARD,             layernorm_forward)             \
  X(LAYERNORM_BACKWARD,            layernorm_backward)            \
  X(RMSNORM_FORWARD,               rmsnorm_forward)               \
  X(RMSNORM_BACKWARD,              rmsnorm_backward)              \
  X(GEMM,                          gemm)                          \
  X(GROUPED_GEMM,                  grouped_gemm)                  \
  X(QUANTIZE,                      quantize)                      \
  X(FP8_TRANSPOSE,                 fp8_transpose)                 \
  X(BIAS_ADD,                      bias_add)                      \
  X(BIAS_GRAD,                     bias_grad)                     \
  X(ROPE_FORWARD,                  rope_forward)                  \
  X(ROPE_BACKWARD,                 rope_backward)                 \
  X(ROPE_PRODUCT,                  rope_product)                  \
  X(ROPE_NEGATED_HALF,             rope_negated_half)             \
  X(ROPE_ROTATED_HALF,             rope_rotated_half)             \
  X(ROPE_JOIN,                     rope_join)                     \
  X(MLA_KEY_VALUE_FORWARD,         mla_key_value_forward)         \
  X(MLA_KEY_VALUE_BACKWARD,        mla_key_value_backward)        \
  X(ATTENTION_FORWARD,             attention_forward)             \
  X(ATTENTION_BACKWARD,            attention_backward)            \
  X(SOFTMAX_FORWARD,               softmax_forward)               \
  X(SOFTMAX_BACKWARD,              softmax_backward)              \
  X(CAUSAL_SOFTMAX_FORWARD,        causal_softmax_forward)        \
  X(CAUSAL_SOFTMAX_BACKWARD,       causal_softmax_backward)       \
  X(JOIN,                          join)                          \
  X(REPEAT_FORWARD,                repeat_forward)                \
  X(REPEAT_BACKWARD,               repeat_backward)               \
  X(DROPOUT_FORWARD,               dropout_forward)               \
  X(DROPOUT_BACKWARD,              dropout_backward)              \
  X(BIAS_DROPOUT_ADD_FORWARD,      bias_dropout_add_forward)      \
  X(BIAS_DROPOUT_ADD_BACKWARD,     dropout_backward)              \
  X(ACTIVATION_FORWARD,            activation_forward)            \
  X(ACTIVATION_BACKWARD,           activation_backward)           \
  X(ADD,                           add)                           \
  X(FILL,                          fill)                          \
  X(COPY,                          copy_elements)                 \
  X(OWN_PART,                      own_part)                      \
  X(VOCABULARY_PART,               vocabulary_part)               \
  X(ROLL,                          roll)                          \
  X(ADD_STRIDED,                   add)                           \
  X(COPY_STRIDED,                  copy_elements)                 \
  X(MULTIPLY,                      multiply)                      \
  X(MULTIPLY_STRIDED,              multiply)                      \
  X(SCALE,                         scale)                         \
  X(DIVIDE,                        divide)                        \
  X(DIVIDE_STRIDED,                divide)                        \
  X(ADD_NUMBER,                    add_number)                    \
  X(SQUARE,                        square)                        \
  X(CUBE,                          cube)                          \
  X(RSQRT,                         rsqrt)                         \
  X(NEGATE_STRIDED,                negate)                        \
  X(COSINE,                        cosine)                        \
  X(SINE,                          sine)                          \
  X(SILU_FORWARD,                  silu_forward)                  \
  X(SILU_FORWARD_STRIDED,          silu_forward)                  \
  X(SILU_BACKWARD,                 silu_backward)                 \
  X(SILU_BACKWARD_STRIDED,         silu_backward)                 \
  X(SUM,                           sum)                           \
  X(COLUMN_SUMS,                   column_sums)                   \
  X(ROTARY_ANGLES,                 rotary_angles)                 \
  X(CAUSAL_MASK,                   causal_mask)                   \
  X(PAD,                           pad)                           \
  X(LOG_SOFTMAX_FORWARD,           log_softmax_forward)           \
  X(LOG_SOFTMAX_BACKWARD,          log_softmax_backward)          \
  X(NLL_FORWARD,                   nll_forward)                   \
  X(NLL_BACKWARD,                  nll_backward)                  \
  X(LOG_PROBS_FORWARD,             log_probs_forward)             \
  X(LOG_PROBS_BACKWARD,            log_probs_backward)            \
  X(RMSNORM_GAIN,                  rmsnorm_gain)                  \
  X(ROUTER_FORWARD,                router_forward)                \
  X(ROUTER_BACKWARD,               router_backward)               \
  X(ROUTER_TOPK_FORWARD,           router_topk_forward)           \
  X(ROUTER_TOPK_BACKWARD,          router_topk_backward)          \
  X(ROUTER_SCORE_FORWARD,          router_score_forward)          \
  X(ROUTER_SCORE_BACKWARD,         router_score_backward)         \
  X(ROW_SUM_FORWARD,               row_sum_forward)               \
  X(ROW_SUM_BACKWARD,              row_sum_backward)              \
  X(ROW_DIVIDE_FORWARD,            row_divide_forward)            \
  X(ROW_DIVIDE_BACKWARD,           row_divide_backward)           \
  X(ROUTER_SCATTER_FORWARD,        router_scatter_forward)        \
  X(ROUTER_SCATTER_BACKWARD,       router_scatter_backward)       \
  X(ROUTER_SINKHORN,               router_sinkhorn)               \
  X(ROUTER_MAP,                    router_map)                    \
  X(ROUTER_MASK,                   router_mask)                   \
  X(ROUTER_CAPACITY,               router_capacity)               \
  X(ROUTER_LOG_SUM,                router_log_sum)                \
  X(ROUTER_Z_LOSS_BACKWARD,        router_z_loss_backward)        \
  X(ROUTER_AUX_FORWARD,            router_aux_forward)            \
  X(ROUTER_AUX_BACKWARD,           router_aux_backward)           \
  X(ROUTER_AUX_COUNT,              router_aux_count)              \
  X(ROUTER_AUX_GRADIENT,           router_aux_gradient)           \
  X(MOE_MULTIHOT_FORWARD,          moe_multihot_forward)          \
  X(MOE_MULTIHOT_BACKWARD,         moe_multihot_backward)         \
  X(MOE_PERMUTE_FORWARD,           moe_permute_forward)           \
  X(MOE_PERMUTE_BACKWARD,          moe_permute_backward)          \
  X(MOE_ROW_MAP,                   moe_row_map)                   \
  X(MOE_SORT_CELLS,                moe_sort_cells)                \
  X(MOE_PERMUTE_PROBS_FORWARD,     moe_permute_probs_forward)     \
  X(MOE_PERMUTE_PROBS_BACKWARD,    moe_permute_probs_backward)    \
  X(MOE_SELECT_PROBS_FORWARD,      moe_select_probs_forward)      \
  X(MOE_SELECT_PROBS_BACKWARD,     moe_select_probs_backward)     \
  X(MOE_LOCAL_COLUMNS_FORWARD,     moe_local_columns_forward)     \
  X(MOE_LOCAL_COLUMNS_BACKWARD,    moe_local_columns_backward)    \
  X(TRANSPOSE,                     transpose)                     \
  X(TRANSPOSE_BACKWARD,            transpose_backward)            \
  X(PERMUTE,                       permute)                       \
  X(UNPERMUTE,                     unpermute)                     \
  X(MOE_SORT_CHUNKS_FORWARD,       moe_sort_chunks_forward)       \
  X(MOE_SORT_CHUNKS_BACKWARD,      moe_sort_chunks_backward)      \
  X(RESIZE_ROWS,                   resize_rows)                   \
  X(WEIGHTED_ACTIVATION_FORWARD,   weighted_activation_forward)   \
  X(WEIGHTED_ACTIVATION_BACKWARD,  weighted_activation_backward)  \
  X(GATE_FORWARD,                  gate_forward)                  \
  X(GATE_BACKWARD,                 gate_backward)                 \
  X(UP_FORWARD,                    up_forward)                    \
  X(UP_BACKWARD,                   up_backward)                   \
  X(MULTIPLY_BACKWARD,             multiply_backward)             \
  X(RELU_FORWARD,                  relu_forward)                  \
  X(RELU_BACKWARD,                 relu_backward)                 \
  X(SQUARE_BACKWARD,               square_backward)               \
  X(WEIGHT_ROWS_FORWARD,           weight_rows_forward)           \
  X(WEIGHT_ROWS_BACKWARD,          weight_rows_backward)          \
  X(ROW_DOT,                       row_dot)                       \
  X(EXPERT_BIAS_FORWARD,           expert_bias_forward)           \
  X(EXPERT_BIAS_BACKWARD,          expert_bias_backward)          \
  X(EXPERT_BIAS_GRAD,              expert_bias_grad)              \
  X(DEQUANTIZE_8BIT,               dequantize_8bit)               \
  X(DEQUANTIZE_4BIT,               dequantize_4bit)               \
  X(SCALED_GEMM,                   scaled_gemm)                   \
  X(GATED_SILU_FORWARD,            gated_silu_forward)            \
  X(GATED_SILU_BACKWARD,           gated_silu_backward)           \
  X(ROWS_CROSS_ENTROPY,            rows_cross_entropy)            \
  X(CROSS_ENTROPY_MAXIMA,          cross_entropy_maxima)          \
  X(CROSS_ENTROPY_SUMS,            cross_entropy_sums)            \
  X(CROSS_ENTROPY_LOSS,            cross_entropy_loss)            \
  X(CROSS_ENTROPY_BACKWARD,        cross_entropy_backward)        \
  X(ONLINE_SOFTMAX,                online_softmax)                \
  X(FUSED_CROSS_ENTROPY,           fused_cross_entropy)           \
  X(LINEAR_CROSS_ENTROPY_FORWARD,  linear_cross_entropy_forward)  \
  X(LINEAR_CROSS_ENTROPY_BACKWARD, linear_cross_entropy_backward) \
  X(MTP_LOSS_GRADIENT,             mtp_loss_gradient)             \
  X(SCALE_ROWS,                    scale_rows)                    \
  X(OPTIMIZER_STEP,                optimizer_step)

/* Those that need scratch: the row, and its function of type cuda_scratch. */
#define EXACT_SCRATCH(X)                                         \
  X(EMBEDDING_BACKWARD,            embedding_backward_scratch)   \
  X(LAYERNORM_FORWARD,             norm_scratch)                 \
  X(LAYERNORM_BACKWARD,            norm_backward_scratch)        \
  X(RMSNORM_FORWARD,               norm_scratch)                 \
  X(RMSNORM_BACKWARD,              norm_backward_scratch)        \
  X(GEMM,                          gemm_scratch)                 \
  X(GROUPED_GEMM,                  grouped_gemm_scratch)            \
  X(QUANTIZE,                      quantize_scratch)                \
  X(ROPE_FORWARD,                  rope_scratch)                 \
  X(ROPE_BACKWARD,                 rope_scratch)                 \
  X(ROPE_PRODUCT,                  rope_product_scratch)         \
  X(MLA_KEY_VALUE_FORWARD,         mla_key_value_scratch)        \
  X(MLA_KEY_VALUE_BACKWARD,        mla_key_value_scratch)        \
  X(ATTENTION_FORWARD,             attention_forward_scratch)    \
  X(ATTENTION_BACKWARD,            attention_backward_scratch)   \
  X(SOFTMAX_FORWARD,               softmax_scratch)              \
  X(SOFTMAX_BACKWARD,              softmax_scratch)              \
  X(CAUSAL_SOFTMAX_FORWARD,        softmax_scratch)              \
  X(CAUSAL_SOFTMAX_BACKWARD,       softmax_scratch)              \
  X(LOG_SOFTMAX_FORWARD,           log_softmax_scratch)                 \
  X(LOG_SOFTMAX_BACKWARD,          log_softmax_scratch)                 \
  X(ROUTER_FORWARD,                router_forward_scratch)          \
  X(ROUTER_BACKWARD,               router_backward_scratch)         \
  X(ROUTER_TOPK_FORWARD,           router_topk_forward_scratch)     \
  X(ROUTER_SINKHORN,               router_sinkhorn_scratch)         \
  X(ROUTER_AUX_FORWARD,            router_aux_forward_scratch)      \
  X(ROUTER_AUX_BACKWARD,           router_backward_scratch)         \
  X(ROUTER_AUX_COUNT,              router_aux_count_scratch)        \
  X(ROUTER_AUX_GRADIENT,           router_aux_gradient_scratch)     \
  X(MOE_PERMUTE_FORWARD,           moe_permute_forward_scratch)     \
  X(MOE_PERMUTE_BACKWARD,          moe_permute_backward_scratch)    \
  X(MOE_ROW_MAP,                   sorted_cells_scratch)            \
  X(MOE_SORT_CELLS,                sorted_cells_scratch)            \
  X(MOE_PERMUTE_PROBS_FORWARD,     owners_scratch)                  \
  X(MOE_PERMUTE_PROBS_BACKWARD,    owners_scratch)                  \
  X(MOE_SELECT_PROBS_FORWARD,      sorted_cells_scratch)            \
  X(MOE_SELECT_PROBS_BACKWARD,     sorted_cells_scratch)            \
  X(PERMUTE,                       owners_scratch)                  \
  X(UNPERMUTE,                     unpermute_scratch)               \
  X(WEIGHTED_ACTIVATION_BACKWARD,  weighted_activation_scratch)               \
  X(EXPERT_BIAS_FORWARD,           expert_bias_scratch)                  \
  X(EXPERT_BIAS_BACKWARD,          expert_bias_scratch)                  \
  X(EXPERT_BIAS_GRAD,              expert_bias_scratch)                  \
  X(SCALED_GEMM,                   gemm_scratch)                 \
  X(ROWS_CROSS_ENTROPY,            rows_cross_entropy_scratch)                     \
  X(FUSED_CROSS_ENTROPY,           fused_cross_entropy_scratch)  \
  X(LINEAR_CROSS_ENTROPY_FORWARD,  linear_cross_entropy_scratch) \
  X(LINEAR_CROSS_ENTROPY_BACKWARD, linear_cross_entropy_scratch)

#define EXACT_COLLECTIVES(X)                 \
  X(ALL_REDUCE,                all_reduce)     \
  X(ALL_REDUCE_MAX,            all_reduce_max) \
  X(ALL_GATHER,                all_gather)     \
  X(REDUCE_SCATTER,            reduce_scatter) \
  X(ALL_TO_ALL,                all_to_all)

#define EXACT_COLLECTIVE_SCRATCH(X) X(ALL_TO_ALL, all_to_all_scratch)
/* clang-format on */

#endif
