/*
 * The kernels that a plan can name: one table, from which the enum, the text names and the
 * documentation come. The executors have one function per row.
 *
 *   name   cost class   shape letters (the dims of a call, in order)   what it does
 *
 * Cost classes (sim/machine/roofline.h turns them into time):
 *   GEMM        dims m n k batch: 2 m n k batch FLOPs
 *   ATTENTION   dims batch heads q_len kv_len qk_dim v_dim causal
 *   MEMORY      bound by the bytes it reads and writes
 *   STRIDED     the same, and by the elements, of which each has its address computed; dims elements
 * A call's `bytes` is what it moves to and from device memory.
 *
 * The order is part of nothing; text and traces name kernels by name.
 */
#ifndef OFFSIM_SIM_PLAN_KERNELS_H
#define OFFSIM_SIM_PLAN_KERNELS_H

/* clang-format off */
#define PLAN_KERNELS(X)                                                                            \
  X(EMBEDDING_FORWARD,        "embedding_forward",        MEMORY,    "tokens h",    "rows of the embedding table")                     \
  X(EMBEDDING_BACKWARD,       "embedding_backward",       MEMORY,    "tokens h",    "adds gradients to the rows")                      \
  X(LAYERNORM_FORWARD,        "layernorm_forward",        MEMORY,    "rows h",      "mean, rstd, normalised rows")                     \
  X(LAYERNORM_BACKWARD,       "layernorm_backward",       MEMORY,    "rows h",      "gradients of rows, gamma and beta")               \
  X(RMSNORM_FORWARD,          "rmsnorm_forward",          MEMORY,    "rows h",      "rstd, normalised rows")                           \
  X(RMSNORM_BACKWARD,         "rmsnorm_backward",         MEMORY,    "rows h",      "gradients of rows and gamma")                     \
  X(GEMM,                     "gemm",                     GEMM,      "m n k batch", "matrix product, fp32 accumulation")               \
  X(GROUPED_GEMM,             "grouped_gemm",             GEMM,      "m n k batch", "one product per local expert, m rows in all")     \
  X(BIAS_ADD,                 "bias_add",                 MEMORY,    "rows h",      "adds a bias to every row")                        \
  X(BIAS_GRAD,                "bias_grad",                MEMORY,    "rows h",      "sums rows into the gradient of a bias")           \
  X(ROPE_FORWARD,             "rope_forward",             MEMORY,    "tokens heads dim", "rotary position embedding")                  \
  X(ROPE_BACKWARD,            "rope_backward",            MEMORY,    "tokens heads dim", "its inverse rotation")                       \
  X(ATTENTION_FORWARD,        "attention_forward",        ATTENTION, "batch heads q_len kv_len qk_dim v_dim causal", "flash attention: output and softmax statistics") \
  X(ATTENTION_BACKWARD,       "attention_backward",       ATTENTION, "batch heads q_len kv_len qk_dim v_dim causal", "flash attention: gradients of query, key, value") \
  X(SOFTMAX_FORWARD,          "softmax_forward",          MEMORY,    "rows cols",   "scaled masked softmax of attention scores")       \
  X(SOFTMAX_BACKWARD,         "softmax_backward",         MEMORY,    "rows cols",   "gradient of scores")                              \
  X(DROPOUT_FORWARD,          "dropout_forward",          MEMORY,    "elements",    "zeroes elements, keeps a mask")                   \
  X(DROPOUT_BACKWARD,         "dropout_backward",         MEMORY,    "elements",    "applies the mask")                                \
  X(BIAS_DROPOUT_ADD_FORWARD, "bias_dropout_add_forward", MEMORY,    "elements",    "residual + dropout(x + bias)")                    \
  X(BIAS_DROPOUT_ADD_BACKWARD,"bias_dropout_add_backward",MEMORY,    "elements",    "gradients of x and bias")                         \
  X(ACTIVATION_FORWARD,       "activation_forward",       MEMORY,    "rows f",      "gelu, swiglu, squared relu")                      \
  X(ACTIVATION_BACKWARD,      "activation_backward",      MEMORY,    "rows f",      "gradient of its input")                           \
  X(ELEMENTWISE,              "elementwise",              MEMORY,    "elements",    "add, multiply, fill, convert")                    \
  X(ELEMENTWISE_STRIDED,      "elementwise_strided",      STRIDED,   "elements",    "the same of operands that do not lie alike")      \
  X(COPY,                     "copy",                     MEMORY,    "elements",    "contiguous copy, transpose, concatenation")       \
  X(REDUCE,                   "reduce",                   MEMORY,    "elements",    "sums and norms")                                  \
  X(ROUTER_FORWARD,           "router_forward",           MEMORY,    "tokens experts k", "scores, choice of experts, probabilities")   \
  X(ROUTER_BACKWARD,          "router_backward",          MEMORY,    "tokens experts k", "gradient of the logits")                     \
  X(PERMUTE,                  "permute",                  MEMORY,    "rows h",      "rows into expert order")                          \
  X(UNPERMUTE,                "unpermute",                MEMORY,    "rows h",      "rows back into token order, weighted sum")        \
  X(SORT,                     "sort",                     MEMORY,    "elements",    "index work of the dispatcher")                    \
  X(QUANTIZE,                 "quantize",                 MEMORY,    "elements",    "bf16 to fp8 with scales")                         \
  X(DEQUANTIZE,               "dequantize",               MEMORY,    "elements",    "4-bit or 8-bit numbers with scales to floats")    \
  X(CROSS_ENTROPY_FORWARD,    "cross_entropy_forward",    MEMORY,    "tokens vocab","vocabulary-parallel loss")                        \
  X(CROSS_ENTROPY_BACKWARD,   "cross_entropy_backward",   MEMORY,    "tokens vocab","gradient of the logits")                          \
  X(OPTIMIZER_STEP,           "optimizer_step",           MEMORY,    "elements",    "optimizer update of one shard")

/* Collectives and exchanges among the ranks of a group. `bytes` of a call: what one rank contributes. */
#define PLAN_COLLECTIVES(X)                             \
  X(ALL_REDUCE,     "all_reduce",     "sum everywhere") \
  X(ALL_GATHER,     "all_gather",     "every part everywhere; bytes of one part") \
  X(REDUCE_SCATTER, "reduce_scatter", "sum, one part each; bytes of the whole")   \
  X(ALL_TO_ALL,     "all_to_all",     "a part from each to each; bytes of all parts of one rank")
/* clang-format on */

#endif
