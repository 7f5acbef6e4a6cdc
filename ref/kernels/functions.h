/*
 * Which rows of the plan's tables have arithmetic, and the function of each: the tables ref_kernels and
 * ref_collectives, and the prototypes, come from here. One line for each row, in the order of
 * sim/plan/kernels.h; some rows differ in cost alone and share a function.
 */
#ifndef OFFSIM_REF_KERNELS_FUNCTIONS_H
#define OFFSIM_REF_KERNELS_FUNCTIONS_H

#include "ref/kernels/kernel.h"

/* clang-format off */
#define REF_KERNELS(X)                                       \
  X(EMBEDDING_FORWARD,         ref_embedding_forward)         \
  X(EMBEDDING_BACKWARD,        ref_embedding_backward)        \
  X(LAYERNORM_FORWARD,         ref_layernorm_forward)         \
  X(LAYERNORM_BACKWARD,        ref_layernorm_backward)        \
  X(RMSNORM_FORWARD,           ref_rmsnorm_forward)           \
  X(RMSNORM_BACKWARD,          ref_rmsnorm_backward)          \
  X(GEMM,                      ref_gemm)                      \
  X(GROUPED_GEMM,              ref_grouped_gemm)              \
  X(QUANTIZE,                  ref_quantize)                  \
  X(FP8_TRANSPOSE,             ref_fp8_transpose)             \
  X(BIAS_ADD,                  ref_bias_add)                  \
  X(BIAS_GRAD,                 ref_bias_grad)                 \
  X(ROPE_FORWARD,              ref_rope_forward)             \
  X(ROPE_BACKWARD,             ref_rope_backward)            \
  X(ROPE_PRODUCT,              ref_rope_product)             \
  X(ROPE_NEGATED_HALF,         ref_rope_negated_half)        \
  X(ROPE_ROTATED_HALF,         ref_rope_rotated_half)        \
  X(ROPE_JOIN,                 ref_rope_join)                \
  X(MLA_KEY_VALUE_FORWARD,     ref_mla_key_value_forward)    \
  X(MLA_KEY_VALUE_BACKWARD,    ref_mla_key_value_backward)   \
  X(ATTENTION_FORWARD,         ref_attention_forward)        \
  X(ATTENTION_BACKWARD,        ref_attention_backward)       \
  X(SOFTMAX_FORWARD,           ref_softmax_forward)          \
  X(SOFTMAX_BACKWARD,          ref_softmax_backward)         \
  X(CAUSAL_SOFTMAX_FORWARD,    ref_causal_softmax_forward)   \
  X(CAUSAL_SOFTMAX_BACKWARD,   ref_causal_softmax_backward)  \
  X(JOIN,                      ref_join)                     \
  X(REPEAT_FORWARD,            ref_repeat_forward)           \
  X(REPEAT_BACKWARD,           ref_repeat_backward)          \
  X(DROPOUT_FORWARD,           ref_dropout_forward)           \
  X(DROPOUT_BACKWARD,          ref_dropout_backward)          \
  X(BIAS_DROPOUT_ADD_FORWARD,  ref_bias_dropout_add_forward)  \
  X(BIAS_DROPOUT_ADD_BACKWARD, ref_dropout_backward)          \
  X(ACTIVATION_FORWARD,        ref_activation_forward)        \
  X(ACTIVATION_BACKWARD,       ref_activation_backward)       \
  X(ADD,                       ref_add)                       \
  X(FILL,                      ref_fill)                      \
  X(COPY,                      ref_copy_elements)             \
  X(OWN_PART,                  ref_own_part)                  \
  X(VOCABULARY_PART,           ref_vocabulary_part)           \
  X(ROLL,                      ref_roll)                      \
  X(ADD_STRIDED,               ref_add)                       \
  X(COPY_STRIDED,              ref_copy_elements)             \
  X(MULTIPLY,                  ref_multiply)                  \
  X(MULTIPLY_STRIDED,          ref_multiply)                  \
  X(SCALE,                     ref_scale)                     \
  X(DIVIDE,                    ref_divide)                    \
  X(DIVIDE_STRIDED,            ref_divide)                    \
  X(ADD_NUMBER,                ref_add_number)                \
  X(SQUARE,                    ref_square)                    \
  X(CUBE,                      ref_cube)                      \
  X(RSQRT,                     ref_rsqrt)                     \
  X(NEGATE_STRIDED,            ref_negate)                    \
  X(COSINE,                    ref_cosine)                    \
  X(SINE,                      ref_sine)                      \
  X(SILU_FORWARD,              ref_silu_forward)              \
  X(SILU_FORWARD_STRIDED,      ref_silu_forward)              \
  X(SILU_BACKWARD,             ref_silu_backward)             \
  X(SILU_BACKWARD_STRIDED,     ref_silu_backward)             \
  X(SUM,                       ref_sum)                       \
  X(COLUMN_SUMS,               ref_column_sums)               \
  X(ROTARY_ANGLES,             ref_rotary_angles)             \
  X(CAUSAL_MASK,               ref_causal_mask)               \
  X(PAD,                       ref_pad)                       \
  X(LOG_SOFTMAX_FORWARD,       ref_log_softmax_forward)       \
  X(LOG_SOFTMAX_BACKWARD,      ref_log_softmax_backward)      \
  X(NLL_FORWARD,               ref_nll_forward)               \
  X(NLL_BACKWARD,              ref_nll_backward)              \
  X(LOG_PROBS_FORWARD,         ref_log_probs_forward)         \
  X(LOG_PROBS_BACKWARD,        ref_log_probs_backward)        \
  X(RMSNORM_GAIN,              ref_rmsnorm_gain)              \
  X(ROUTER_FORWARD,            ref_router_forward)            \
  X(ROUTER_BACKWARD,           ref_router_backward)           \
  X(ROUTER_TOPK_FORWARD,       ref_router_topk_forward)       \
  X(ROUTER_TOPK_BACKWARD,      ref_router_topk_backward)      \
  X(ROUTER_SCORE_FORWARD,      ref_router_score_forward)      \
  X(ROUTER_SCORE_BACKWARD,     ref_router_score_backward)     \
  X(ROW_SUM_FORWARD,           ref_row_sum_forward)           \
  X(ROW_SUM_BACKWARD,          ref_row_sum_backward)          \
  X(ROW_DIVIDE_FORWARD,        ref_row_divide_forward)        \
  X(ROW_DIVIDE_BACKWARD,       ref_row_divide_backward)       \
  X(ROUTER_SCATTER_FORWARD,    ref_router_scatter_forward)    \
  X(ROUTER_SCATTER_BACKWARD,   ref_router_scatter_backward)   \
  X(ROUTER_SINKHORN,           ref_router_sinkhorn)           \
  X(ROUTER_MAP,                ref_router_map)                \
  X(ROUTER_MASK,               ref_router_mask)               \
  X(ROUTER_CAPACITY,           ref_router_capacity)           \
  X(ROUTER_LOG_SUM,            ref_router_log_sum)            \
  X(ROUTER_Z_LOSS_BACKWARD,    ref_router_z_loss_backward)    \
  X(ROUTER_AUX_FORWARD,        ref_router_aux_forward)        \
  X(ROUTER_AUX_BACKWARD,       ref_router_aux_backward)       \
  X(ROUTER_AUX_COUNT,          ref_router_aux_count)          \
  X(ROUTER_AUX_GRADIENT,       ref_router_aux_gradient)       \
  X(MOE_MULTIHOT_FORWARD,      ref_moe_multihot_forward)      \
  X(MOE_MULTIHOT_BACKWARD,     ref_moe_multihot_backward)     \
  X(MOE_PERMUTE_FORWARD,       ref_moe_permute_forward)       \
  X(MOE_PERMUTE_BACKWARD,      ref_moe_permute_backward)      \
  X(MOE_ROW_MAP,               ref_moe_row_map)               \
  X(MOE_SORT_CELLS,            ref_moe_sort_cells)            \
  X(MOE_PERMUTE_PROBS_FORWARD, ref_moe_permute_probs_forward) \
  X(MOE_PERMUTE_PROBS_BACKWARD,ref_moe_permute_probs_backward)\
  X(MOE_SELECT_PROBS_FORWARD,  ref_moe_select_probs_forward)  \
  X(MOE_SELECT_PROBS_BACKWARD, ref_moe_select_probs_backward) \
  X(MOE_LOCAL_COLUMNS_FORWARD, ref_moe_local_columns_forward) \
  X(MOE_LOCAL_COLUMNS_BACKWARD,ref_moe_local_columns_backward)\
  X(TRANSPOSE,                 ref_transpose)                 \
  X(TRANSPOSE_BACKWARD,        ref_transpose_backward)        \
  X(PERMUTE,                   ref_permute)                   \
  X(UNPERMUTE,                 ref_unpermute)                 \
  X(MOE_SORT_CHUNKS_FORWARD,   ref_moe_sort_chunks_forward)   \
  X(MOE_SORT_CHUNKS_BACKWARD,  ref_moe_sort_chunks_backward)  \
  X(RESIZE_ROWS,               ref_resize_rows)               \
  X(WEIGHTED_ACTIVATION_FORWARD,ref_weighted_activation_forward)\
  X(WEIGHTED_ACTIVATION_BACKWARD,ref_weighted_activation_backward)\
  X(GATE_FORWARD,              ref_gate_forward)              \
  X(GATE_BACKWARD,             ref_gate_backward)             \
  X(UP_FORWARD,                ref_up_forward)                \
  X(UP_BACKWARD,               ref_up_backward)               \
  X(MULTIPLY_BACKWARD,         ref_multiply_backward)         \
  X(RELU_FORWARD,              ref_relu_forward)              \
  X(RELU_BACKWARD,             ref_relu_backward)             \
  X(SQUARE_BACKWARD,           ref_square_backward)           \
  X(WEIGHT_ROWS_FORWARD,       ref_weight_rows_forward)       \
  X(WEIGHT_ROWS_BACKWARD,      ref_weight_rows_backward)      \
  X(ROW_DOT,                   ref_row_dot)                   \
  X(EXPERT_BIAS_FORWARD,       ref_expert_bias_forward)       \
  X(EXPERT_BIAS_BACKWARD,      ref_expert_bias_backward)      \
  X(EXPERT_BIAS_GRAD,          ref_expert_bias_grad)          \
  X(DEQUANTIZE_8BIT,           ref_dequantize_8bit)           \
  X(DEQUANTIZE_4BIT,           ref_dequantize_4bit)           \
  X(SCALED_GEMM,               ref_scaled_gemm)               \
  X(GATED_SILU_FORWARD,        ref_gated_silu_forward)        \
  X(GATED_SILU_BACKWARD,       ref_gated_silu_backward)       \
  X(ROWS_CROSS_ENTROPY,        ref_rows_cross_entropy)        \
  X(CROSS_ENTROPY_MAXIMA,      ref_cross_entropy_maxima)      \
  X(CROSS_ENTROPY_SUMS,        ref_cross_entropy_sums)        \
  X(CROSS_ENTROPY_LOSS,        ref_cross_entropy_loss)        \
  X(CROSS_ENTROPY_BACKWARD,    ref_cross_entropy_backward)    \
  X(ONLINE_SOFTMAX,            ref_online_softmax)            \
  X(FUSED_CROSS_ENTROPY,       ref_fused_cross_entropy)       \
  X(LINEAR_CROSS_ENTROPY_FORWARD, ref_linear_cross_entropy_forward) \
  X(LINEAR_CROSS_ENTROPY_BACKWARD, ref_linear_cross_entropy_backward) \
  X(MTP_LOSS_GRADIENT,         ref_mtp_loss_gradient) \
  X(SCALE_ROWS,                ref_scale_rows) \
  X(OPTIMIZER_STEP,            ref_optimizer_step)

#define REF_COLLECTIVES(X)                 \
  X(ALL_REDUCE,     ref_all_reduce)         \
  X(ALL_REDUCE_MAX, ref_all_reduce_max)     \
  X(ALL_GATHER,     ref_all_gather)         \
  X(REDUCE_SCATTER, ref_reduce_scatter)     \
  X(ALL_TO_ALL,     ref_all_to_all)
/* clang-format on */

#define X(row, function) ref_kernel function;
REF_KERNELS(X)
#undef X
#define X(row, function) ref_collective function;
REF_COLLECTIVES(X)
#undef X

#endif
