/*
 * The kernels that a plan can name: one table, from which the enum, the text names and the
 * documentation come. The executors have one function per row.
 *
 *   name   cost class   shape letters (the dims of a call, in order; then its scalars)   what it does
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
  X(EMBEDDING_FORWARD,        "embedding_forward",        MEMORY,    "tokens h", "rows of the embedding table; zeros where the mask says so") \
  X(EMBEDDING_BACKWARD,       "embedding_backward",       MEMORY,    "tokens h", "sums of gradients by row, but for those that are masked") \
  X(LAYERNORM_FORWARD,        "layernorm_forward",        MEMORY,    "rows h; epsilon zero_centred", "normalised rows, rstd, mean") \
  X(LAYERNORM_BACKWARD,       "layernorm_backward",       MEMORY,    "rows h; zero_centred", "gradients of rows, gamma and beta") \
  X(RMSNORM_FORWARD,          "rmsnorm_forward",          MEMORY,    "rows h; epsilon zero_centred", "normalised rows, rstd") \
  X(RMSNORM_BACKWARD,         "rmsnorm_backward",         MEMORY,    "rows h; zero_centred", "gradients of rows and gamma") \
  X(GEMM,                     "gemm",                     GEMM,      "m n k batch; layout add fp8", "matrix product (gemm_layout), fp32 accumulation; add: to what is there") \
  X(GROUPED_GEMM,             "grouped_gemm",             GEMM,      "m n k batch experts; layout add fp8 biased", "one product per local expert (gemm_layout), their rows one after the other") \
  X(BIAS_ADD,                 "bias_add",                 MEMORY,    "rows h",      "adds a bias to every row")                        \
  X(BIAS_GRAD,                "bias_grad",                MEMORY,    "rows h",      "sums rows into the gradient of a bias")           \
  X(ROPE_FORWARD,             "rope_forward",             MEMORY,    "tokens heads dim; theta batch pairs", "rotary position embedding of the first or last dim columns of a head (rope_pairs)") \
  X(ROPE_BACKWARD,            "rope_backward",            MEMORY,    "tokens heads dim; theta batch pairs", "its inverse rotation, by saved cosines and sines if there are any") \
  X(ROPE_PRODUCT,             "rope_product",             MEMORY,    "tokens heads dim; theta batch pairs sine", "columns that are rotated times their cosines or sines; keeps those too") \
  X(ROPE_NEGATED_HALF,        "rope_negated_half",        MEMORY,    "tokens heads dim; pairs", "the second columns of pairs, negated")     \
  X(ROPE_ROTATED_HALF,        "rope_rotated_half",        MEMORY,    "tokens heads dim; pairs", "those, each with the first column of its pair") \
  X(ROPE_JOIN,                "rope_join",                MEMORY,    "tokens heads dim; pairs", "rotated columns and the others of their head") \
  X(MLA_KEY_VALUE_FORWARD,    "mla_key_value_forward",    MEMORY,    "tokens heads dim; theta batch", "keys with a rotated part that all heads share, and values") \
  X(MLA_KEY_VALUE_BACKWARD,   "mla_key_value_backward",   MEMORY,    "tokens heads dim; theta batch", "gradients of the projection and of the shared part") \
  X(ATTENTION_FORWARD,        "attention_forward",        ATTENTION, "batch heads q_len kv_len qk_dim v_dim causal; kv_heads scale dropout layout", "flash attention: output and softmax statistics") \
  X(ATTENTION_BACKWARD,       "attention_backward",       ATTENTION, "batch heads q_len kv_len qk_dim v_dim causal; kv_heads scale dropout layout", "flash attention: gradients of query, key, value") \
  X(SOFTMAX_FORWARD,          "softmax_forward",          MEMORY,    "rows cols",   "scaled masked softmax of attention scores")       \
  X(SOFTMAX_BACKWARD,         "softmax_backward",         MEMORY,    "rows cols",   "gradient of scores")                              \
  X(CAUSAL_SOFTMAX_FORWARD,   "causal_softmax_forward",   MEMORY,    "rows cols; scale queries", "softmax of scaled scores of the keys up to a query's own position") \
  X(CAUSAL_SOFTMAX_BACKWARD,  "causal_softmax_backward",  MEMORY,    "rows cols; scale queries", "gradient of the scores")                  \
  X(JOIN,                     "join",                     MEMORY,    "rows first second third fourth fifth; missing", "rows side by side; those of the bits of `missing` are zeros") \
  X(REPEAT_FORWARD,           "repeat_forward",           MEMORY,    "elements; times width", "each row of `width` elements several times")  \
  X(REPEAT_BACKWARD,          "repeat_backward",          MEMORY,    "elements; times width", "sums of the repeated rows")                   \
  X(DROPOUT_FORWARD,          "dropout_forward",          MEMORY,    "elements; probability split", "zeroes elements, keeps a mask") \
  X(DROPOUT_BACKWARD,         "dropout_backward",         MEMORY,    "elements; probability split", "applies the mask") \
  X(BIAS_DROPOUT_ADD_FORWARD, "bias_dropout_add_forward", MEMORY,    "elements; probability split", "dropout(x + bias) + residual, keeps the mask") \
  X(BIAS_DROPOUT_ADD_BACKWARD,"bias_dropout_add_backward",MEMORY,    "elements; probability split", "gradient of x") \
  X(ACTIVATION_FORWARD,       "activation_forward",       MEMORY,    "rows f; function gated", "activation of x [+ bias] (activation_function); gated: of the first half, times the second") \
  X(ACTIVATION_BACKWARD,      "activation_backward",      MEMORY,    "rows f; function gated", "gradient of its input") \
  X(ADD,                      "add",                      MEMORY,    "elements",    "a + b")                                           \
  X(FILL,                     "fill",                     MEMORY,    "elements; value", "the same value everywhere")                   \
  X(OWN_PART,                 "own_part",                 MEMORY,    "elements; group", "of equal parts, one for each rank of a group (comm_group), the rank's own") \
  X(VOCABULARY_PART,          "vocabulary_part",          MEMORY,    "elements; rows", "indices into a table split over TP as those into its own rows, 0 and a mask for the others") \
  X(ROLL,                     "roll",                     MEMORY,    "rows cols", "what the next position of a sequence has, 0 for the last") \
  X(ELEMENTWISE,              "elementwise",              MEMORY,    "elements",    "any of these, in plans written by hand")          \
  X(COPY,                     "copy",                     MEMORY,    "elements",    "contiguous copy, transpose, concatenation")       \
  X(ADD_STRIDED,              "add_strided",              STRIDED,   "elements",    "a + b of operands that do not lie alike")         \
  X(COPY_STRIDED,             "copy_strided",             STRIDED,   "elements",    "copy of operands that do not lie alike")          \
  X(MULTIPLY,                 "multiply",                 MEMORY,    "elements",    "a b")                                             \
  X(MULTIPLY_STRIDED,         "multiply_strided",         STRIDED,   "elements",    "a b of operands that do not lie alike")           \
  X(SCALE,                    "scale",                    MEMORY,    "elements; factor", "x times a number")                           \
  X(DIVIDE,                   "divide",                   MEMORY,    "elements; divisor", "x over a number")                           \
  X(DIVIDE_STRIDED,           "divide_strided",           STRIDED,   "elements; divisor", "x over a number, lying otherwise")          \
  X(ADD_NUMBER,               "add_number",               MEMORY,    "elements; number", "x plus a number")                            \
  X(SQUARE,                   "square",                   MEMORY,    "elements",    "x x")                                             \
  X(CUBE,                     "cube",                     MEMORY,    "elements",    "x x x")                                           \
  X(RSQRT,                    "rsqrt",                    MEMORY,    "elements",    "1 over the square root of x")                     \
  X(NEGATE_STRIDED,           "negate_strided",           STRIDED,   "elements",    "-x, lying otherwise")                             \
  X(COSINE,                   "cosine",                   MEMORY,    "elements",    "cosine of x")                                     \
  X(SINE,                     "sine",                     MEMORY,    "elements",    "sine of x")                                       \
  X(SILU_FORWARD,             "silu_forward",             MEMORY,    "elements",    "x sigmoid(x)")                                    \
  X(SILU_FORWARD_STRIDED,     "silu_forward_strided",     STRIDED,   "elements",    "the same of an x that has gaps")                  \
  X(SILU_BACKWARD,            "silu_backward",            MEMORY,    "elements",    "gradient of x")                                   \
  X(SILU_BACKWARD_STRIDED,    "silu_backward_strided",    STRIDED,   "elements",    "the same of an x that has gaps")                  \
  X(SUM,                      "sum",                      MEMORY,    "elements; factor", "sums of as many elements in a row as make one written, times a number") \
  X(COLUMN_SUMS,              "column_sums",              MEMORY,    "elements",    "sums of the columns of rows as long as what is written") \
  X(ROTARY_ANGLES,            "rotary_angles",            MEMORY,    "elements; base positions width", "angles of positions, and the same twice side by side") \
  X(CAUSAL_MASK,              "causal_mask",              MEMORY,    "rows cols",   "0 up to the row's own position, then the lowest number") \
  X(PAD,                      "pad",                      MEMORY,    "elements; value columns", "rows of `columns` elements, the last ones the value") \
  X(LOG_SOFTMAX_FORWARD,      "log_softmax_forward",      MEMORY,    "rows cols",   "logarithms of probabilities")                     \
  X(LOG_SOFTMAX_BACKWARD,     "log_softmax_backward",     MEMORY,    "rows cols",   "gradient of the logits")                          \
  X(NLL_FORWARD,              "nll_forward",              MEMORY,    "tokens vocab; ignored", "mean of what the labels pick, and their number") \
  X(NLL_BACKWARD,             "nll_backward",             MEMORY,    "tokens vocab; ignored", "gradient at what the labels pick")      \
  X(LOG_PROBS_FORWARD,        "log_probs_forward",        MEMORY,    "tokens vocab; ignored", "losses, log-sum-exp, its penalty (0)")  \
  X(LOG_PROBS_BACKWARD,       "log_probs_backward",       MEMORY,    "tokens vocab; ignored", "gradient of the logits")                \
  X(RMSNORM_GAIN,             "rmsnorm_gain",             MEMORY,    "elements",    "gradient of gamma, from rows and rstd")           \
  X(ROUTER_FORWARD,            "router_forward",            MEMORY,    "tokens experts k; score groups group_topk forced", "probabilities of the chosen experts (router_score), the map of the choice, scores") \
  X(ROUTER_BACKWARD,           "router_backward",           MEMORY,    "tokens experts k; score", "gradient of the logits, from map and scores") \
  X(ROUTER_TOPK_FORWARD,       "router_topk_forward",       MEMORY,    "tokens experts k; groups group_topk forced", "choice of experts: their scores, their numbers") \
  X(ROUTER_TOPK_BACKWARD,      "router_topk_backward",      MEMORY,    "tokens experts k", "the gradients at the chosen experts") \
  X(ROUTER_SCORE_FORWARD,      "router_score_forward",      MEMORY,    "elements; score", "sigmoid, or the root of softplus") \
  X(ROUTER_SCORE_BACKWARD,     "router_score_backward",     MEMORY,    "elements; score", "gradient of its input, from its result") \
  X(ROW_SUM_FORWARD,           "row_sum_forward",           MEMORY,    "rows cols", "sums of rows") \
  X(ROW_SUM_BACKWARD,          "row_sum_backward",          MEMORY,    "rows cols", "a number for every row, in all its columns") \
  X(ROW_DIVIDE_FORWARD,        "row_divide_forward",        MEMORY,    "rows cols; epsilon", "rows over a number of their own") \
  X(ROW_DIVIDE_BACKWARD,       "row_divide_backward",       MEMORY,    "rows cols; epsilon", "gradients of rows and numbers") \
  X(ROUTER_SCATTER_FORWARD,    "router_scatter_forward",    MEMORY,    "tokens experts k", "chosen probabilities among all experts, the map of the choice") \
  X(ROUTER_SCATTER_BACKWARD,   "router_scatter_backward",   MEMORY,    "tokens experts k", "gradients of the chosen") \
  X(ROUTER_SINKHORN,           "router_sinkhorn",           MEMORY,    "tokens experts k", "experts chosen from a balanced matrix") \
  X(ROUTER_MAP,                "router_map",                MEMORY,    "tokens experts k", "the map of a choice") \
  X(ROUTER_MASK,              "router_mask",                    MEMORY,    "elements", "x where a mask is set, else 0") \
  X(ROUTER_CAPACITY,           "router_capacity",           MEMORY,    "tokens experts k; capacity padded", "a map without what an expert does not take") \
  X(ROUTER_LOG_SUM,            "router_log_sum",            MEMORY,    "tokens experts", "logarithms of the sums of exponentials") \
  X(ROUTER_Z_LOSS_BACKWARD,    "router_z_loss_backward",    MEMORY,    "tokens experts", "gradient of the mean square of those") \
  X(ROUTER_AUX_FORWARD,        "router_aux_forward",        MEMORY,    "tokens experts k; score", "scores of all experts for the balancing loss") \
  X(ROUTER_AUX_BACKWARD,       "router_aux_backward",       MEMORY,    "tokens experts; score", "gradient of the logits, from the scores kept") \
  X(ROUTER_AUX_COUNT,          "router_aux_count",          MEMORY,    "tokens experts k; sequences", "how often an expert is chosen in a sequence") \
  X(ROUTER_AUX_GRADIENT,       "router_aux_gradient",       MEMORY,    "tokens experts k; factor sequences", "gradient of the scores: how often an expert is chosen, times a factor") \
  X(MOE_PERMUTE_FORWARD,       "moe_permute_forward",       MEMORY,    "rows h tokens experts; slotted", "rows and probabilities into expert order, and the map of the rows") \
  X(MOE_PERMUTE_BACKWARD,      "moe_permute_backward",      MEMORY,    "rows h tokens experts", "gradients of rows and probabilities, in token order") \
  X(MOE_ROW_MAP,               "moe_row_map",               MEMORY,    "rows tokens experts; slotted", "the map of the rows of a choice") \
  X(MOE_SORT_CELLS,            "moe_sort_cells",            MEMORY,    "rows tokens experts; slotted", "the cells of a choice in expert order, twice") \
  X(MOE_PERMUTE_PROBS_FORWARD, "moe_permute_probs_forward", MEMORY,    "rows tokens experts", "the probabilities of sorted cells") \
  X(MOE_PERMUTE_PROBS_BACKWARD,"moe_permute_probs_backward",MEMORY,    "rows tokens experts", "their gradients, in token order") \
  X(MOE_SELECT_PROBS_FORWARD,  "moe_select_probs_forward",  MEMORY,    "rows tokens experts; slotted", "the probabilities under a mask, expert by expert") \
  X(MOE_SELECT_PROBS_BACKWARD, "moe_select_probs_backward", MEMORY,    "rows tokens experts; slotted", "their gradients, 0 elsewhere") \
  X(MOE_MULTIHOT_FORWARD,      "moe_multihot_forward",      MEMORY,    "rows experts k", "numbers of experts and their probabilities as columns of the rank's own experts, and a map") \
  X(MOE_MULTIHOT_BACKWARD,     "moe_multihot_backward",     MEMORY,    "rows experts k", "gradients of the probabilities") \
  X(MOE_LOCAL_COLUMNS_FORWARD, "moe_local_columns_forward", MEMORY,    "rows cols all", "the columns of the rank's own experts") \
  X(MOE_LOCAL_COLUMNS_BACKWARD,"moe_local_columns_backward",MEMORY,    "rows cols all", "their gradient among zeros") \
  X(TRANSPOSE,                 "transpose",                 MEMORY,    "rows cols", "a matrix the other way round") \
  X(TRANSPOSE_BACKWARD,        "transpose_backward",        MEMORY,    "rows cols", "the matrix as it was") \
  X(PERMUTE,                   "permute",                   MEMORY,    "rows h", "rows into expert order") \
  X(UNPERMUTE,                 "unpermute",                 MEMORY,    "rows h", "rows back into token order, a sum for every token") \
  X(MOE_SORT_CHUNKS_FORWARD,   "moe_sort_chunks_forward",   MEMORY,    "rows h outer inner", "equal chunks by the second of their numbers first") \
  X(MOE_SORT_CHUNKS_BACKWARD,  "moe_sort_chunks_backward",  MEMORY,    "rows h outer inner", "gradients the other way round") \
  X(RESIZE_ROWS,               "resize_rows",               MEMORY,    "elements parts", "parts cut off, or filled up with zeros") \
  X(WEIGHTED_ACTIVATION_FORWARD,"weighted_activation_forward",MEMORY,    "rows f; function", "gated activation times a number for every row") \
  X(WEIGHTED_ACTIVATION_BACKWARD,"weighted_activation_backward",MEMORY,    "rows f; function", "gradients of its input and of the numbers") \
  X(GATE_FORWARD,              "gate_forward",              MEMORY,    "rows f; function", "activation of the first half of a row") \
  X(GATE_BACKWARD,             "gate_backward",             MEMORY,    "rows f; function", "its gradient, 0 for the second half") \
  X(UP_FORWARD,                "up_forward",                MEMORY,    "rows f", "the second half of a row") \
  X(UP_BACKWARD,               "up_backward",               MEMORY,    "rows f", "its gradient, 0 for the first half") \
  X(MULTIPLY_BACKWARD,         "multiply_backward",         MEMORY,    "elements", "gradients of both factors") \
  X(RELU_FORWARD,              "relu_forward",              MEMORY,    "elements", "max(x, 0)") \
  X(RELU_BACKWARD,             "relu_backward",             MEMORY,    "elements", "its gradient, from its result") \
  X(SQUARE_BACKWARD,           "square_backward",           MEMORY,    "elements", "gradient of x x") \
  X(WEIGHT_ROWS_FORWARD,       "weight_rows_forward",       MEMORY,    "rows h", "rows times a number of their own") \
  X(WEIGHT_ROWS_BACKWARD,      "weight_rows_backward",      MEMORY,    "rows h", "gradients of rows and numbers") \
  X(ROW_DOT,                   "row_dot",                   MEMORY,    "rows h", "products of pairs of rows") \
  X(EXPERT_BIAS_FORWARD,       "expert_bias_forward",       MEMORY,    "rows h experts", "x + bias of the row's expert, times its probability") \
  X(EXPERT_BIAS_BACKWARD,      "expert_bias_backward",      MEMORY,    "rows h experts", "gradients of x, probabilities and biases") \
  X(EXPERT_BIAS_GRAD,          "expert_bias_grad",          MEMORY,    "rows h experts", "sums of the rows of each expert") \
  X(QUANTIZE,                 "quantize",                 MEMORY,    "elements; columns fp8 copies", "rows of floats to copies in fp8 (sim/plan/fp8_copy.h)") \
  X(FP8_TRANSPOSE,            "fp8_transpose",            MEMORY,    "elements; columns", "rowwise copies in fp8 to columnwise ones")           \
  X(DEQUANTIZE_8BIT,          "dequantize_8bit",          MEMORY,    "elements; block", "bytes of the dynamic code book, a scale for each block, to floats") \
  X(DEQUANTIZE_4BIT,          "dequantize_4bit",          MEMORY,    "elements; block", "pairs of NormalFloat-4 numbers, a scale for each block, to floats") \
  X(SCALED_GEMM,              "scaled_gemm",              GEMM,      "m n k batch; layout alpha", "gemm, whose product is multiplied by alpha before an addend is added") \
  X(GATED_SILU_FORWARD,       "gated_silu_forward",       MEMORY,    "rows f",      "silu(gate) up of two tensors") \
  X(GATED_SILU_BACKWARD,      "gated_silu_backward",      MEMORY,    "rows f",      "[the same again, and] the gradients of gate and up") \
  X(ROWS_CROSS_ENTROPY,       "rows_cross_entropy",       MEMORY,    "tokens vocab", "losses of some tokens, in place the gradient of their logits") \
  X(CROSS_ENTROPY_MAXIMA,     "cross_entropy_maxima",     MEMORY,    "tokens vocab", "logits in fp32, the largest of each row") \
  X(CROSS_ENTROPY_SUMS,       "cross_entropy_sums",       MEMORY,    "tokens vocab", "exponentials, their sum, the label and its logit, of this rank's part of the vocabulary") \
  X(CROSS_ENTROPY_LOSS,       "cross_entropy_loss",       MEMORY,    "tokens vocab", "losses, softmax") \
  X(CROSS_ENTROPY_BACKWARD,   "cross_entropy_backward",   MEMORY,    "tokens vocab", "(softmax - label) times the gradient of the loss, in place of the softmax") \
  X(ONLINE_SOFTMAX,           "online_softmax",           MEMORY,    "tokens vocab", "maximum, sum of exponentials and logit of the label of each row") \
  X(FUSED_CROSS_ENTROPY,      "fused_cross_entropy",      MEMORY,    "tokens vocab", "losses and gradient of the logits from those of all parts of the vocabulary") \
  X(MTP_LOSS_GRADIENT,        "mtp_loss_gradient",        MEMORY,    "rows cols; weight missing", "the weight of all losses over those that have a target, 0 for the last of a sequence, which have none") \
  X(SCALE_ROWS,               "scale_rows",               MEMORY,    "tokens vocab", "rows times a number each") \
  X(LINEAR_CROSS_ENTROPY_FORWARD,"linear_cross_entropy_forward",GEMM,      "m n k batch", "losses of rows times a weight; keeps maxima and sums of exponentials") \
  X(LINEAR_CROSS_ENTROPY_BACKWARD,"linear_cross_entropy_backward",GEMM,      "m n k batch", "gradient of the logits, which are computed again") \
  X(OPTIMIZER_STEP,           "optimizer_step",           MEMORY,    "elements tensors states main; decay beta1 beta2 epsilon", "optimizer update of some parameters")

/* Collectives and exchanges among the ranks of a group. `bytes` of a call: what one rank contributes. */
#define PLAN_COLLECTIVES(X)                             \
  X(ALL_REDUCE,     "all_reduce",     "sum everywhere") \
  X(ALL_REDUCE_MAX, "all_reduce_max", "maximum everywhere") \
  X(ALL_GATHER,     "all_gather",     "every part everywhere; bytes of one part") \
  X(REDUCE_SCATTER, "reduce_scatter", "sum, one part each; bytes of the whole")   \
  X(ALL_TO_ALL,     "all_to_all",     "a part from each to each; bytes of all parts of one rank")
/* clang-format on */

/*
 * How a product's operands lie: C[m, n] = A[m, k] B[n, k]^T (forward of a linear), A[m, k] B[k, n] (gradient of
 * its input), A[k, m]^T B[k, n] (gradient of its weight), and the last one of columnwise copies in fp8, which
 * are turned already: A[m, k] B[n, k]^T.
 */
typedef enum gemm_layout { GEMM_NT, GEMM_NN, GEMM_TN, GEMM_TN_COPIES } gemm_layout;

/* GELU_TANH: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; GELU_ERF: x (1 + erf(x / sqrt 2)) / 2; SILU:
 * x sigmoid(x); QUICK_GELU: x sigmoid(1.702 x); SQUARED_RELU: max(x, 0)^2. */
typedef enum activation_function {
  ACTIVATION_GELU_TANH,
  ACTIVATION_GELU_ERF,
  ACTIVATION_SILU,
  ACTIVATION_QUICK_GELU,
  ACTIVATION_SQUARED_RELU
} activation_function;

/* Scores of a router. SOFTMAX: of the chosen experts alone; PRE_SOFTMAX: of all, before the choice; the others of
 * each expert by itself, over their sum. */
typedef enum router_score {
  ROUTER_SOFTMAX,
  ROUTER_PRE_SOFTMAX,
  ROUTER_SIGMOID,
  ROUTER_SQRT_SOFTPLUS
} router_score;

/*
 * Which columns of a head a rotary embedding pairs. HALVES: the first `dim` columns, i with i + dim / 2;
 * NEIGHBOURS: the same columns, 2 i with 2 i + 1; LAST_NEIGHBOURS: the last `dim` columns of the head, 2 i with
 * 2 i + 1, which are written as halves.
 */
typedef enum rope_pairs {
  ROPE_PAIRS_HALVES,
  ROPE_PAIRS_NEIGHBOURS,
  ROPE_PAIRS_LAST_NEIGHBOURS
} rope_pairs;

/* The order of the dimensions of query, key, value, output and their gradients in attention. */
typedef enum attention_layout {
  ATTENTION_BHSD, /* batch, heads, sequence, width */
  ATTENTION_SBHD,
  ATTENTION_BSHD
} attention_layout;
enum { GEMM_LAYOUT, GEMM_ADD, GEMM_FP8, GEMM_BIASED }; /* scalars of gemm and grouped_gemm */

#endif
