/*
 * The kernels and collectives of plans: one row each. Enums, text names and documentation come from
 * here, and so do the prototypes and tables of the executors, which have one function for each row.
 *
 *   X(id, name, cost, letters, meaning,
 *     arithmetic, scratch, fast)
 *
 *   name         in texts and traces; nothing depends on the order of the rows
 *   cost         how its time is computed (sim/machine/roofline.h):
 *                  GEMM        dims m n k batch: 2 m n k batch FLOPs
 *                  ATTENTION   dims batch heads q_len kv_len qk_dim v_dim causal window
 *                  MEMORY      bound by the bytes it reads and writes
 *                  STRIDED     the same, and by its elements, whose addresses are computed one by
 *                              one; dims elements
 *                  MIXED       the same, whose threads convert each element; dims elements
 *                  ROW_CAST    the same, whose blocks cast a row of a tile and skip the others; dims elements
 *                  ROTARY      the same, of two thirds of the elements; dims tokens heads dim
 *                  NORM        bound by its bytes; then, if the scalar `general` is set, sums of gamma's
 *                              parts in fixed order; dims rows h
 *                  HOST        arithmetic of the host's processor, bound by the bytes of host memory
 *                              that it reads and writes
 *   letters      the dims of a call, in order; after the semicolon its scalars
 *   arithmetic   F: ref_F (ref/kernels), and cuda_exact_F and host_exact_F (cuda/kernels/exact)
 *                with the same bits; NONE: none. Rows that differ only in cost share F
 *   scratch      S: cuda_exact_S_scratch returns the scratch memory that the exact kernel needs;
 *                NONE: none
 *   fast         fast arithmetic on GPUs (cuda/kernels/fast):
 *                  NONE        none: the exact kernel runs
 *                  PLAIN(F)    fast_F launches; fast_suits_F says which calls it supports
 *                  SCRATCH(F)  the same, and fast_scratch_F returns the scratch memory that it
 *                              needs
 *                  LIBRARY(F)  the same, and a library (cuBLASLt, cuDNN) loads code for it
 *
 * The last three only name functions. A call's `bytes` is its traffic to and from device
 * memory, or host memory (HOST).
 */
#ifndef OFFSIM_SIM_PLAN_KERNELS_H
#define OFFSIM_SIM_PLAN_KERNELS_H

/* clang-format off */
#define PLAN_KERNELS(X) \
  X(EMBEDDING_FORWARD,        "embedding_forward",        MEMORY,    "tokens h", "rows of the embedding table; zeros where the mask says so", \
    embedding_forward, NONE, PLAIN(embedding_forward)) \
  X(EMBEDDING_BACKWARD,       "embedding_backward",       MEMORY,    "tokens h", "sums of gradients by row, but for those that are masked", \
    embedding_backward, embedding_backward, SCRATCH(embedding_backward)) \
  X(LAYERNORM_FORWARD,        "layernorm_forward",        MEMORY,    "rows h; epsilon zero_centred", "normalised rows, rstd, mean", \
    layernorm_forward, norm, PLAIN(layernorm_forward)) \
  X(LAYERNORM_BACKWARD,       "layernorm_backward",       MEMORY,    "rows h; zero_centred", "gradients of rows, gamma and beta", \
    layernorm_backward, norm_backward, SCRATCH(layernorm_backward)) \
  X(RMSNORM_FORWARD,          "rmsnorm_forward",          MEMORY,    "rows h; epsilon zero_centred", "normalised rows, rstd", \
    rmsnorm_forward, norm, PLAIN(rmsnorm_forward)) \
  X(RMSNORM_BACKWARD,         "rmsnorm_backward",         NORM,      "rows h; zero_centred general", "gradients of rows and gamma; general: by Transformer Engine's kernel for any width", \
    rmsnorm_backward, norm_backward, SCRATCH(rmsnorm_backward)) \
  X(UNSCALED_NORM_FORWARD,    "unscaled_norm_forward",    MEMORY,    "rows h; epsilon", "rows over their root mean square, 1 over that", \
    unscaled_norm_forward, NONE, NONE) \
  X(UNSCALED_NORM_BACKWARD,   "unscaled_norm_backward",   MEMORY,    "rows h",      "gradient of the rows, from them and 1 over their root mean square", \
    unscaled_norm_backward, NONE, NONE) \
  X(GEMM,                     "gemm",                     GEMM,      "m n k batch parts; layout add fp8", "matrix product (gemm_layout), fp32 accumulation; add: to the old contents; parts: one of as many equal products in a row, whose tiles fill each other's last wave", \
    gemm, gemm, LIBRARY(gemm)) \
  X(GROUPED_GEMM,             "grouped_gemm",             GEMM,      "m n k batch experts first of; layout add fp8 biased", "one product per local expert (gemm_layout), their rows one after the other; with `of`, of the experts from `first` on, whose rows are among those of `of` experts", \
    grouped_gemm, grouped_gemm, SCRATCH(grouped_gemm)) \
  X(BIAS_ADD,                 "bias_add",                 MEMORY,    "rows h",      "adds a bias to every row", \
    bias_add, NONE, PLAIN(bias_add)) \
  X(BIAS_GRAD,                "bias_grad",                MEMORY,    "rows h",      "sums rows into the gradient of a bias", \
    bias_grad, NONE, SCRATCH(column_sums)) \
  X(ROPE_FORWARD,             "rope_forward",             ROTARY,    "tokens heads dim; theta batch pairs", "rotary position embedding of the first or last dim columns of a head (rope_pairs)", \
    rope_forward, rope, SCRATCH(rope_forward)) \
  X(ROPE_BACKWARD,            "rope_backward",            ROTARY,    "tokens heads dim; theta batch pairs", "the inverse rotation, by saved cosines and sines if there are any", \
    rope_backward, rope, SCRATCH(rope_backward)) \
  X(ROPE_PRODUCT,             "rope_product",             MEMORY,    "tokens heads dim; theta batch pairs sine", "rotated columns times their cosines or sines; keeps these too", \
    rope_product, rope_product, SCRATCH(rope_product)) \
  X(ROPE_NEGATED_HALF,        "rope_negated_half",        MEMORY,    "tokens heads dim; pairs", "the second columns of pairs, negated", \
    rope_negated_half, NONE, PLAIN(rope_negated_half)) \
  X(ROPE_ROTATED_HALF,        "rope_rotated_half",        MEMORY,    "tokens heads dim; pairs", "those, each with the first column of its pair", \
    rope_rotated_half, NONE, PLAIN(rope_rotated_half)) \
  X(ROPE_JOIN,                "rope_join",                MEMORY,    "tokens heads dim; pairs", "rotated columns and the others of their head", \
    rope_join, NONE, PLAIN(rope_join)) \
  X(MLA_KEY_VALUE_FORWARD,    "mla_key_value_forward",    MEMORY,    "tokens heads dim; theta batch", "keys with a rotated part that all heads share, and values", \
    mla_key_value_forward, mla_key_value, SCRATCH(mla_key_value_forward)) \
  X(MLA_KEY_VALUE_BACKWARD,   "mla_key_value_backward",   MEMORY,    "tokens heads dim; theta batch", "gradients of the projection and of the shared part", \
    mla_key_value_backward, mla_key_value, SCRATCH(mla_key_value_backward)) \
  X(ATTENTION_FORWARD,        "attention_forward",        ATTENTION, "batch heads q_len kv_len qk_dim v_dim causal window; kv_heads scale dropout layout", "flash attention: output and softmax statistics; window: of the keys up to its own a query sees this many, the last ones", \
    attention_forward, attention_forward, LIBRARY(attention_forward)) \
  X(ATTENTION_BACKWARD,       "attention_backward",       ATTENTION, "batch heads q_len kv_len qk_dim v_dim causal window; kv_heads scale dropout layout", "flash attention: gradients of query, key, value", \
    attention_backward, attention_backward, LIBRARY(attention_backward)) \
  X(SOFTMAX_FORWARD,          "softmax_forward",          MEMORY,    "rows cols",   "scaled masked softmax of attention scores", \
    softmax_forward, softmax, PLAIN(softmax_forward)) \
  X(SOFTMAX_BACKWARD,         "softmax_backward",         MEMORY,    "rows cols",   "gradient of scores", \
    softmax_backward, softmax, PLAIN(softmax_backward)) \
  X(CAUSAL_SOFTMAX_FORWARD,   "causal_softmax_forward",   MEMORY,    "rows cols; scale queries", "softmax of scaled scores of the keys up to a query's own position", \
    causal_softmax_forward, softmax, PLAIN(causal_softmax_forward)) \
  X(CAUSAL_SOFTMAX_BACKWARD,  "causal_softmax_backward",  MEMORY,    "rows cols; scale queries", "gradient of the scores", \
    causal_softmax_backward, softmax, PLAIN(causal_softmax_backward)) \
  X(JOIN,                     "join",                     MEMORY,    "rows first second third fourth fifth; missing", "rows side by side; parts whose bit of `missing` is set are zeros", \
    join, NONE, PLAIN(join)) \
  X(REPEAT_FORWARD,           "repeat_forward",           MEMORY,    "elements; times width", "each row of `width` elements several times", \
    repeat_forward, NONE, PLAIN(repeat_forward)) \
  X(REPEAT_BACKWARD,          "repeat_backward",          MEMORY,    "elements; times width", "sums of the repeated rows", \
    repeat_backward, NONE, PLAIN(repeat_backward)) \
  X(DROPOUT_FORWARD,          "dropout_forward",          MEMORY,    "elements; probability split", "zeroes elements, keeps a mask", \
    dropout_forward, NONE, PLAIN(dropout_forward)) \
  X(DROPOUT_BACKWARD,         "dropout_backward",         MEMORY,    "elements; probability split", "applies the mask", \
    dropout_backward, NONE, PLAIN(dropout_backward)) \
  X(BIAS_DROPOUT_ADD_FORWARD, "bias_dropout_add_forward", MEMORY,    "elements; probability split", "dropout(x + bias) + residual, keeps the mask", \
    bias_dropout_add_forward, NONE, PLAIN(bias_dropout_add_forward)) \
  X(BIAS_DROPOUT_ADD_BACKWARD,"bias_dropout_add_backward",MEMORY,    "elements; probability split", "gradient of x", \
    dropout_backward, NONE, PLAIN(dropout_backward)) \
  X(ACTIVATION_FORWARD,       "activation_forward",       MEMORY,    "rows f; function gated", "activation of x [+ bias] (activation_function); gated: of the first half, times the second", \
    activation_forward, NONE, PLAIN(activation_forward)) \
  X(ACTIVATION_BACKWARD,      "activation_backward",      MEMORY,    "rows f; function gated", "gradient of its input", \
    activation_backward, NONE, PLAIN(activation_backward)) \
  X(ADD,                      "add",                      MEMORY,    "elements",    "a + b", \
    add, NONE, PLAIN(add)) \
  X(FILL,                     "fill",                     MEMORY,    "elements; value", "the same value everywhere", \
    fill, NONE, PLAIN(fill)) \
  X(FILL_EMPTY,               "fill_empty",               MEMORY,    "elements; value", "the same, of what torch.empty has just allocated: deterministic algorithms", \
    fill, NONE, PLAIN(fill)) \
  X(OWN_PART,                 "own_part",                 MEMORY,    "elements; group", "the rank's part of equal parts, one for each rank of a group (comm_group)", \
    own_part, NONE, PLAIN(own_part)) \
  X(VOCABULARY_PART,          "vocabulary_part",          MEMORY,    "elements; rows", "indices into a table split over TP, as indices into the rank's rows; 0 and a mask for other ranks' rows", \
    vocabulary_part, NONE, NONE) \
  X(ROLL,                     "roll",                     MEMORY,    "rows cols", "the next position's value in a sequence, 0 for the last", \
    roll, NONE, NONE) \
  X(MUON_UPDATE,              "muon_update",              MEMORY,    "elements",    "decay, momentum or step of a matrix by Muon", \
    NONE, NONE, NONE) \
  X(MUON_NORM,                "muon_norm",                MEMORY,    "elements",    "the norm of a matrix", \
    NONE, NONE, NONE) \
  X(MUON_PRODUCT,             "muon_product",             GEMM,      "m n k batch; layout", "a product of a Newton-Schulz iteration [and an addend]", \
    NONE, NONE, NONE) \
  X(ELEMENTWISE,              "elementwise",              MEMORY,    "elements",    "any of these, in plans written by hand", \
    NONE, NONE, NONE) \
  X(COPY,                     "copy",                     MEMORY,    "elements",    "contiguous copy, transpose, concatenation", \
    copy_elements, NONE, PLAIN(copy)) \
  X(ADD_STRIDED,              "add_strided",              STRIDED,   "elements",    "a + b of operands with different layouts", \
    add, NONE, PLAIN(add)) \
  X(ADD_MIXED,                "add_mixed",                MIXED,     "elements",    "a + b of different types", \
    add, NONE, PLAIN(add)) \
  X(COPY_STRIDED,             "copy_strided",             STRIDED,   "elements",    "copy between operands with different layouts", \
    copy_elements, NONE, PLAIN(copy)) \
  X(MULTIPLY,                 "multiply",                 MEMORY,    "elements",    "a b", \
    multiply, NONE, PLAIN(multiply)) \
  X(MULTIPLY_STRIDED,         "multiply_strided",         STRIDED,   "elements",    "a b of operands with different layouts", \
    multiply, NONE, PLAIN(multiply)) \
  X(SCALE,                    "scale",                    MEMORY,    "elements; factor", "x times a number", \
    scale, NONE, PLAIN(scale)) \
  X(DIVIDE,                   "divide",                   MEMORY,    "elements; divisor", "x over a number", \
    divide, NONE, PLAIN(divide)) \
  X(DIVIDE_STRIDED,           "divide_strided",           STRIDED,   "elements; divisor", "x over a number, lying otherwise", \
    divide, NONE, PLAIN(divide)) \
  X(ADD_NUMBER,               "add_number",               MEMORY,    "elements; number", "x plus a number", \
    add_number, NONE, PLAIN(add_number)) \
  X(SQUARE,                   "square",                   MEMORY,    "elements",    "x x", \
    square, NONE, PLAIN(square)) \
  X(CUBE,                     "cube",                     MEMORY,    "elements",    "x x x", \
    cube, NONE, PLAIN(cube)) \
  X(RSQRT,                    "rsqrt",                    MEMORY,    "elements",    "1 over the square root of x", \
    rsqrt, NONE, PLAIN(rsqrt)) \
  X(NEGATE_STRIDED,           "negate_strided",           STRIDED,   "elements",    "-x, lying otherwise", \
    negate, NONE, PLAIN(negate)) \
  X(COSINE,                   "cosine",                   MEMORY,    "elements",    "cosine of x", \
    cosine, NONE, PLAIN(cosine)) \
  X(SINE,                     "sine",                     MEMORY,    "elements",    "sine of x", \
    sine, NONE, PLAIN(sine)) \
  X(SILU_FORWARD,             "silu_forward",             MEMORY,    "elements",    "x sigmoid(x)", \
    silu_forward, NONE, PLAIN(silu_forward)) \
  X(SILU_FORWARD_STRIDED,     "silu_forward_strided",     STRIDED,   "elements",    "the same of an x that has gaps", \
    silu_forward, NONE, PLAIN(silu_forward)) \
  X(SILU_BACKWARD,            "silu_backward",            MEMORY,    "elements",    "gradient of x", \
    silu_backward, NONE, PLAIN(silu_backward)) \
  X(SILU_BACKWARD_STRIDED,    "silu_backward_strided",    STRIDED,   "elements",    "the same of an x that has gaps", \
    silu_backward, NONE, PLAIN(silu_backward)) \
  X(TANH_FORWARD,             "tanh_forward",             MEMORY,    "elements",    "tanh(x)", \
    tanh_forward, NONE, NONE) \
  X(TANH_BACKWARD,            "tanh_backward",            MEMORY,    "elements",    "gradient of x, from tanh(x)", \
    tanh_backward, NONE, NONE) \
  X(SIGMOID_FORWARD,          "sigmoid_forward",          MEMORY,    "elements",    "1 / (1 + exp(-x))", \
    sigmoid_forward, NONE, NONE) \
  X(SIGMOID_BACKWARD,         "sigmoid_backward",         MEMORY,    "elements",    "gradient of x, from the result", \
    sigmoid_backward, NONE, NONE) \
  X(SOFTPLUS_FORWARD,         "softplus_forward",         MEMORY,    "elements",    "log(1 + exp(x)); x where it is above 20", \
    softplus_forward, NONE, NONE) \
  X(SOFTPLUS_BACKWARD,        "softplus_backward",        MEMORY,    "elements",    "gradient of x", \
    softplus_backward, NONE, NONE) \
  X(EXP,                      "exp",                      MEMORY,    "elements",    "exp(x)", \
    exponential, NONE, NONE) \
  X(L2NORM_FORWARD,           "l2norm_forward",           MEMORY,    "rows h; epsilon", "rows of length 1, the inverse of what they had", \
    l2norm_forward, NONE, NONE) \
  X(L2NORM_BACKWARD,          "l2norm_backward",          MEMORY,    "rows h",      "gradient of the rows, from the result and those inverses", \
    l2norm_backward, NONE, NONE) \
  X(CAUSAL_CONV_FORWARD,      "causal_conv_forward",      MEMORY,    "batch tokens channels width", "silu of each channel's last `width` positions times its weights", \
    causal_conv_forward, NONE, NONE) \
  X(CAUSAL_CONV_BACKWARD,     "causal_conv_backward",     MEMORY,    "batch tokens channels width", "gradients of its input and of the weights", \
    causal_conv_backward, causal_conv_backward, NONE) \
  X(CHUNK_SUMS,               "chunk_sums",               MEMORY,    "batch tokens heads chunk; reversed", "sums of a chunk's numbers up to each position, or from it on", \
    chunk_sums, NONE, NONE) \
  X(DELTA_INVERSE,            "delta_inverse",            MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "gated delta rule: the inverse of 1 + the decayed products of a chunk's keys", \
    delta_inverse, delta_inverse, NONE) \
  X(DELTA_UPDATES,            "delta_updates",            MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... that inverse times keys and values: what each position reads from the state and writes to it", \
    delta_updates, NONE, NONE) \
  X(DELTA_STATES,             "delta_states",             MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... the state before each chunk, and the values that are new to it", \
    delta_states, delta_states, NONE) \
  X(DELTA_OUTPUT,             "delta_output",             MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... the result, from states and new values", \
    delta_output, delta_scores, NONE) \
  X(DELTA_VALUE_GRADIENT,     "delta_value_gradient",     MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... gradient of the new values from their own chunk", \
    delta_value_gradient, delta_scores, NONE) \
  X(DELTA_STATES_BACKWARD,    "delta_states_backward",    MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... gradients of the state after each chunk and of the new values", \
    delta_states_backward, delta_states, NONE) \
  X(DELTA_OUTPUT_BACKWARD,    "delta_output_backward",    MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... gradients of queries, keys, reads and sums of the decay, for each value head", \
    delta_output_backward, delta_scores, NONE) \
  X(DELTA_UPDATES_BACKWARD,   "delta_updates_backward",   MEMORY,    "batch tokens key_heads heads qk_dim v_dim chunk", "... gradients of keys, values, beta and sums of the decay through the inverse", \
    delta_updates_backward, delta_updates_backward, NONE) \
  X(SUM,                      "sum",                      MEMORY,    "elements; factor", "sums of equally many consecutive elements for each written one, times a number", \
    sum, NONE, PLAIN(sum)) \
  X(COLUMN_SUMS,              "column_sums",              MEMORY,    "elements",    "sums over rows of each column", \
    column_sums, NONE, SCRATCH(column_sums)) \
  X(ROTARY_ANGLES,            "rotary_angles",            MEMORY,    "elements; base positions width", "angles of positions, and the same twice side by side", \
    rotary_angles, NONE, NONE) \
  X(ROTARY_POLAR,             "rotary_polar",             MEMORY,    "elements",    "complex numbers of length 1 with those angles", \
    rotary_polar, NONE, NONE) \
  X(COMPLEX_MULTIPLY,         "complex_multiply",         MEMORY,    "elements; conjugate", "x times y, or its conjugate; two elements are a complex number", \
    complex_multiply, NONE, NONE) \
  X(POSITION_SCALE,           "position_scale",           MEMORY,    "elements; scale length first", "1 + scale log(1 + floor((position + first) / length))", \
    position_scale, NONE, NONE) \
  X(TOPK,                     "topk",                     MEMORY,    "rows cols k", "the largest elements of each row, their columns", \
    topk, NONE, NONE) \
  X(SCATTER_COLUMNS,          "scatter_columns",          MEMORY,    "rows cols k", "writes each row's elements to columns of its own", \
    scatter_columns, NONE, NONE) \
  X(GATHER_COLUMNS,           "gather_columns",           MEMORY,    "rows cols k", "each row's elements of columns of its own", \
    gather_columns, NONE, NONE) \
  X(CAUSAL_MASK,              "causal_mask",              MEMORY,    "rows cols",   "0 up to the row's own position, then the lowest number", \
    causal_mask, NONE, NONE) \
  X(PAD,                      "pad",                      MEMORY,    "elements; value columns", "rows of `columns` elements, the last ones the value", \
    pad, NONE, NONE) \
  X(LOG_SOFTMAX_FORWARD,      "log_softmax_forward",      MEMORY,    "rows cols",   "logarithms of probabilities", \
    log_softmax_forward, log_softmax, PLAIN(log_softmax_forward)) \
  X(LOG_SOFTMAX_BACKWARD,     "log_softmax_backward",     MEMORY,    "rows cols",   "gradient of the logits", \
    log_softmax_backward, log_softmax, PLAIN(log_softmax_backward)) \
  X(NLL_FORWARD,              "nll_forward",              MEMORY,    "tokens vocab; ignored", "mean of the labels' log-probabilities, negated, and the number of labels", \
    nll_forward, NONE, PLAIN(nll_forward)) \
  X(NLL_BACKWARD,             "nll_backward",             MEMORY,    "tokens vocab; ignored", "gradient at the labels", \
    nll_backward, NONE, NONE) \
  X(LOG_PROBS_FORWARD,        "log_probs_forward",        MEMORY,    "tokens vocab; ignored", "losses, log-sum-exp, its penalty (0)", \
    log_probs_forward, NONE, PLAIN(log_probs_forward)) \
  X(LOG_PROBS_BACKWARD,       "log_probs_backward",       MEMORY,    "tokens vocab; ignored", "gradient of the logits", \
    log_probs_backward, NONE, PLAIN(log_probs_backward)) \
  X(RMSNORM_GAIN,             "rmsnorm_gain",             MEMORY,    "elements",    "gradient of gamma, from rows and rstd", \
    rmsnorm_gain, NONE, SCRATCH(rmsnorm_gain)) \
  X(ROUTER_FORWARD,            "router_forward",            MEMORY,    "tokens experts k; score groups group_topk forced", "probabilities of the chosen experts (router_score), the map of the choice, scores", \
    router_forward, router_forward, PLAIN(router_forward)) \
  X(ROUTER_BACKWARD,           "router_backward",           MEMORY,    "tokens experts k; score", "gradient of the logits, from map and scores", \
    router_backward, router_backward, PLAIN(router_backward)) \
  X(ROUTER_TOPK_FORWARD,       "router_topk_forward",       MEMORY,    "tokens experts k; groups group_topk forced", "choice of experts: their scores, their numbers", \
    router_topk_forward, router_topk_forward, PLAIN(router_topk_forward)) \
  X(ROUTER_TOPK_BACKWARD,      "router_topk_backward",      MEMORY,    "tokens experts k", "the gradients at the chosen experts", \
    router_topk_backward, NONE, NONE) \
  X(ROUTER_SCORE_FORWARD,      "router_score_forward",      MEMORY,    "elements; score", "sigmoid, or the root of softplus", \
    router_score_forward, NONE, NONE) \
  X(ROUTER_SCORE_BACKWARD,     "router_score_backward",     MEMORY,    "elements; score", "gradient of its input, from its result", \
    router_score_backward, NONE, NONE) \
  X(ROW_SUM_FORWARD,           "row_sum_forward",           MEMORY,    "rows cols", "sums of rows", \
    row_sum_forward, NONE, NONE) \
  X(ROW_SUM_BACKWARD,          "row_sum_backward",          MEMORY,    "rows cols", "a number for each row, in all its columns", \
    row_sum_backward, NONE, NONE) \
  X(ROW_DIVIDE_FORWARD,        "row_divide_forward",        MEMORY,    "rows cols; epsilon", "rows, each divided by its number", \
    row_divide_forward, NONE, NONE) \
  X(ROW_DIVIDE_BACKWARD,       "row_divide_backward",       MEMORY,    "rows cols; epsilon", "gradients of rows and numbers", \
    row_divide_backward, NONE, NONE) \
  X(ROUTER_SCATTER_FORWARD,    "router_scatter_forward",    MEMORY,    "tokens experts k", "chosen probabilities among all experts, the map of the choice", \
    router_scatter_forward, NONE, NONE) \
  X(ROUTER_SCATTER_BACKWARD,   "router_scatter_backward",   MEMORY,    "tokens experts k", "gradients of the chosen", \
    router_scatter_backward, NONE, NONE) \
  X(ROUTER_SINKHORN,           "router_sinkhorn",           MEMORY,    "tokens experts k", "experts chosen from a balanced matrix", \
    router_sinkhorn, router_sinkhorn, NONE) \
  X(ROUTER_MAP,                "router_map",                MEMORY,    "tokens experts k", "the map of a choice", \
    router_map, NONE, NONE) \
  X(ROUTER_MASK,              "router_mask",                    MEMORY,    "elements", "x where a mask is set, else 0", \
    router_mask, NONE, NONE) \
  X(ROUTER_CAPACITY,           "router_capacity",           MEMORY,    "tokens experts k; capacity padded", "a map without the tokens that exceed an expert's capacity", \
    router_capacity, NONE, NONE) \
  X(ROUTER_LOG_SUM,            "router_log_sum",            MEMORY,    "tokens experts", "logarithms of the sums of exponentials", \
    router_log_sum, NONE, NONE) \
  X(ROUTER_Z_LOSS_BACKWARD,    "router_z_loss_backward",    MEMORY,    "tokens experts", "gradient of the mean square of those", \
    router_z_loss_backward, NONE, NONE) \
  X(ROUTER_AUX_FORWARD,        "router_aux_forward",        MEMORY,    "tokens experts k; score", "scores of all experts for the balancing loss", \
    router_aux_forward, router_aux_forward, PLAIN(router_aux_forward)) \
  X(ROUTER_AUX_BACKWARD,       "router_aux_backward",       MEMORY,    "tokens experts; score", "gradient of the logits, from the scores kept", \
    router_aux_backward, router_backward, PLAIN(router_aux_backward)) \
  X(ROUTER_AUX_COUNT,          "router_aux_count",          MEMORY,    "tokens experts k; sequences", "how often an expert is chosen in a sequence", \
    router_aux_count, router_aux_count, NONE) \
  X(ROUTER_AUX_GRADIENT,       "router_aux_gradient",       MEMORY,    "tokens experts k; factor sequences", "gradient of the scores: how often an expert is chosen, times a factor", \
    router_aux_gradient, router_aux_gradient, NONE) \
  X(MOE_COUNT,                 "moe_count",                 MEMORY,    "tokens experts", "how many tokens chose each expert, from the map of the choice", \
    moe_count, moe_count, NONE) \
  X(MOE_PERMUTE_FORWARD,       "moe_permute_forward",       MEMORY,    "rows h tokens experts; slotted", "rows and probabilities into expert order, and the map of the rows", \
    moe_permute_forward, moe_permute_forward, SCRATCH(moe_permute_forward)) \
  X(MOE_PERMUTE_BACKWARD,      "moe_permute_backward",      MEMORY,    "rows h tokens experts", "gradients of rows and probabilities, in token order", \
    moe_permute_backward, moe_permute_backward, SCRATCH(moe_permute_backward)) \
  X(MOE_ROW_MAP,               "moe_row_map",               MEMORY,    "rows tokens experts; slotted", "the map of the rows of a choice", \
    moe_row_map, sorted_cells, NONE) \
  X(MOE_SORT_CELLS,            "moe_sort_cells",            MEMORY,    "rows tokens experts; slotted", "the cells of a choice in expert order, twice", \
    moe_sort_cells, sorted_cells, NONE) \
  X(MOE_PERMUTE_PROBS_FORWARD, "moe_permute_probs_forward", MEMORY,    "rows tokens experts", "the probabilities of sorted cells", \
    moe_permute_probs_forward, owners, NONE) \
  X(MOE_PERMUTE_PROBS_BACKWARD,"moe_permute_probs_backward",MEMORY,    "rows tokens experts", "their gradients, in token order", \
    moe_permute_probs_backward, owners, NONE) \
  X(MOE_SELECT_PROBS_FORWARD,  "moe_select_probs_forward",  MEMORY,    "rows tokens experts; slotted", "the probabilities under a mask, expert by expert", \
    moe_select_probs_forward, sorted_cells, NONE) \
  X(MOE_SELECT_PROBS_BACKWARD, "moe_select_probs_backward", MEMORY,    "rows tokens experts; slotted", "their gradients, 0 elsewhere", \
    moe_select_probs_backward, sorted_cells, NONE) \
  X(MOE_MULTIHOT_FORWARD,      "moe_multihot_forward",      MEMORY,    "rows experts k", "expert numbers and their probabilities as columns of the rank's experts, and a map", \
    moe_multihot_forward, NONE, NONE) \
  X(MOE_MULTIHOT_BACKWARD,     "moe_multihot_backward",     MEMORY,    "rows experts k", "gradients of the probabilities", \
    moe_multihot_backward, NONE, NONE) \
  X(MOE_LOCAL_COLUMNS_FORWARD, "moe_local_columns_forward", MEMORY,    "rows cols all", "the columns of the rank's experts", \
    moe_local_columns_forward, NONE, NONE) \
  X(MOE_LOCAL_COLUMNS_BACKWARD,"moe_local_columns_backward",MEMORY,    "rows cols all", "their gradient among zeros", \
    moe_local_columns_backward, NONE, NONE) \
  X(TRANSPOSE,                 "transpose",                 MEMORY,    "rows cols", "a transposed matrix", \
    transpose, NONE, NONE) \
  X(TRANSPOSE_BACKWARD,        "transpose_backward",        MEMORY,    "rows cols", "the original matrix", \
    transpose_backward, NONE, NONE) \
  X(PERMUTE,                   "permute",                   MEMORY,    "rows h", "rows into expert order", \
    permute, owners, SCRATCH(permute)) \
  X(UNPERMUTE,                 "unpermute",                 MEMORY,    "rows h", "rows back into token order, summed for each token", \
    unpermute, unpermute, SCRATCH(unpermute)) \
  X(MOE_SORT_CHUNKS_FORWARD,   "moe_sort_chunks_forward",   MEMORY,    "rows h outer inner", "equal chunks, transposed: ordered by their second index", \
    moe_sort_chunks_forward, NONE, PLAIN(moe_sort_chunks_forward)) \
  X(MOE_SORT_CHUNKS_BACKWARD,  "moe_sort_chunks_backward",  MEMORY,    "rows h outer inner", "gradients in the original order", \
    moe_sort_chunks_backward, NONE, PLAIN(moe_sort_chunks_backward)) \
  X(RESIZE_ROWS,               "resize_rows",               MEMORY,    "elements parts", "parts cut, or padded with zeros", \
    resize_rows, NONE, NONE) \
  X(WEIGHTED_ACTIVATION_FORWARD,"weighted_activation_forward",MEMORY,    "rows f; function ungated", "gated activation times a number for each row; ungated: activation", \
    weighted_activation_forward, NONE, PLAIN(weighted_activation_forward)) \
  X(WEIGHTED_ACTIVATION_BACKWARD,"weighted_activation_backward",MEMORY,    "rows f; function ungated", "gradients of its input and of the numbers", \
    weighted_activation_backward, weighted_activation, PLAIN(weighted_activation_backward)) \
  X(GATE_FORWARD,              "gate_forward",              MEMORY,    "rows f; function", "activation of the first half of a row", \
    gate_forward, NONE, NONE) \
  X(GATE_BACKWARD,             "gate_backward",             MEMORY,    "rows f; function", "its gradient, 0 for the second half", \
    gate_backward, NONE, NONE) \
  X(UP_FORWARD,                "up_forward",                MEMORY,    "rows f", "the second half of a row", \
    up_forward, NONE, NONE) \
  X(UP_BACKWARD,               "up_backward",               MEMORY,    "rows f", "its gradient, 0 for the first half", \
    up_backward, NONE, NONE) \
  X(MULTIPLY_BACKWARD,         "multiply_backward",         MEMORY,    "elements", "gradients of both factors", \
    multiply_backward, NONE, NONE) \
  X(RELU_FORWARD,              "relu_forward",              MEMORY,    "elements", "max(x, 0)", \
    relu_forward, NONE, NONE) \
  X(RELU_BACKWARD,             "relu_backward",             MEMORY,    "elements", "its gradient, from its result", \
    relu_backward, NONE, NONE) \
  X(SQUARE_BACKWARD,           "square_backward",           MEMORY,    "elements", "gradient of x x", \
    square_backward, NONE, NONE) \
  X(WEIGHT_ROWS_FORWARD,       "weight_rows_forward",       MEMORY,    "rows h", "rows, each times its number", \
    weight_rows_forward, NONE, NONE) \
  X(WEIGHT_ROWS_BACKWARD,      "weight_rows_backward",      MEMORY,    "rows h", "gradients of rows and numbers", \
    weight_rows_backward, NONE, NONE) \
  X(ROW_DOT,                   "row_dot",                   MEMORY,    "rows h", "products of pairs of rows", \
    row_dot, NONE, NONE) \
  X(EXPERT_BIAS_FORWARD,       "expert_bias_forward",       MEMORY,    "rows h experts", "x + bias of the row's expert, times its probability", \
    expert_bias_forward, expert_bias, NONE) \
  X(EXPERT_BIAS_BACKWARD,      "expert_bias_backward",      MEMORY,    "rows h experts", "gradients of x, probabilities and biases", \
    expert_bias_backward, expert_bias, NONE) \
  X(EXPERT_BIAS_GRAD,          "expert_bias_grad",          MEMORY,    "rows h experts", "sums of the rows of each expert", \
    expert_bias_grad, expert_bias, NONE) \
  X(QUANTIZE,                 "quantize",                 MEMORY,    "elements experts; columns fp8 copies", "rows of floats to copies in fp8 (sim/plan/fp8_copy.h); experts: whose rows the framework quantises one after the other, 0: at once", \
    quantize, quantize, NONE) \
  X(CAST_TRANSPOSE_ROW,       "cast_transpose_row",       ROW_CAST,  "elements",    "a matrix of one row to fp8, and the transposed copy", \
    NONE, NONE, NONE) \
  X(FP8_TRANSPOSE,            "fp8_transpose",            MEMORY,    "elements; columns", "rowwise copies in fp8 to columnwise ones", \
    fp8_transpose, NONE, NONE) \
  X(DEQUANTIZE_8BIT,          "dequantize_8bit",          MEMORY,    "elements; block", "bytes of the dynamic code book, a scale for each block, to floats", \
    dequantize_8bit, NONE, NONE) \
  X(DEQUANTIZE_4BIT,          "dequantize_4bit",          MEMORY,    "elements; block", "pairs of NormalFloat-4 numbers, a scale for each block, to floats", \
    dequantize_4bit, NONE, NONE) \
  X(MAGNITUDE,                "magnitude",                MEMORY,    "elements",    "|x|", \
    NONE, NONE, NONE) \
  X(OUTLIERS,                 "outliers",                 MEMORY,    "elements",    "which elements reach a threshold, as bytes", \
    NONE, NONE, NONE) \
  X(QUANTIZE_ROWS,            "quantize_rows",            MEMORY,    "rows h",      "rows as bytes, and the largest magnitude of each", \
    NONE, NONE, NONE) \
  X(INT8_GEMM,                "int8_gemm",                GEMM,      "m n k batch; layout", "product of bytes (gemm_layout), summed as int32", \
    NONE, NONE, NONE) \
  X(DEQUANTIZE_PRODUCT,       "dequantize_product",       MEMORY,    "rows h",      "sums of products of bytes times the scales of their row and column", \
    NONE, NONE, NONE) \
  X(SCALED_GEMM,              "scaled_gemm",              GEMM,      "m n k batch; layout alpha", "gemm, whose product is multiplied by alpha before an addend is added", \
    scaled_gemm, gemm, LIBRARY(gemm)) \
  X(GATED_SILU_FORWARD,       "gated_silu_forward",       MEMORY,    "rows f",      "silu(gate) up of two tensors", \
    gated_silu_forward, NONE, PLAIN(gated_silu_forward)) \
  X(GATED_SILU_BACKWARD,      "gated_silu_backward",      MEMORY,    "rows f",      "[the same again, and] the gradients of gate and up", \
    gated_silu_backward, NONE, PLAIN(gated_silu_backward)) \
  X(ROWS_CROSS_ENTROPY,       "rows_cross_entropy",       MEMORY,    "tokens vocab", "losses of some tokens; the gradient of their logits in place", \
    rows_cross_entropy, rows_cross_entropy, SCRATCH(rows_cross_entropy)) \
  X(CROSS_ENTROPY_MAXIMA,     "cross_entropy_maxima",     MEMORY,    "tokens vocab; eager", "logits in fp32, the largest of each row", \
    cross_entropy_maxima, NONE, PLAIN(cross_entropy_maxima)) \
  X(CROSS_ENTROPY_SUMS,       "cross_entropy_sums",       MEMORY,    "tokens vocab; eager", "exponentials, their sum, the label and its logit, of this rank's part of the vocabulary", \
    cross_entropy_sums, NONE, PLAIN(cross_entropy_sums)) \
  X(CROSS_ENTROPY_LOSS,       "cross_entropy_loss",       MEMORY,    "tokens vocab; eager", "losses, softmax", \
    cross_entropy_loss, NONE, PLAIN(cross_entropy_loss)) \
  X(CROSS_ENTROPY_BACKWARD,   "cross_entropy_backward",   MEMORY,    "tokens vocab; eager", "(softmax - label) times the gradient of the loss, in place", \
    cross_entropy_backward, NONE, PLAIN(cross_entropy_backward)) \
  X(ONLINE_SOFTMAX,           "online_softmax",           MEMORY,    "tokens vocab", "maximum, sum of exponentials and logit of the label of each row", \
    online_softmax, NONE, PLAIN(online_softmax)) \
  X(FUSED_CROSS_ENTROPY,      "fused_cross_entropy",      MEMORY,    "tokens vocab", "losses and gradient of the logits from those of all parts of the vocabulary", \
    fused_cross_entropy, fused_cross_entropy, PLAIN(fused_cross_entropy)) \
  X(MTP_LOSS_GRADIENT,        "mtp_loss_gradient",        MEMORY,    "rows cols; weight missing", "the losses' weight divided by the number of losses with a target; 0 for a sequence's last ones, which have none", \
    mtp_loss_gradient, NONE, NONE) \
  X(SCALE_ROWS,               "scale_rows",               MEMORY,    "tokens vocab", "rows, each times its number", \
    scale_rows, NONE, PLAIN(scale_rows)) \
  X(LINEAR_CROSS_ENTROPY_FORWARD,"linear_cross_entropy_forward",GEMM,      "m n k batch", "losses of rows times a weight; keeps maxima and sums of exponentials", \
    linear_cross_entropy_forward, linear_cross_entropy, LIBRARY(linear_cross_entropy)) \
  X(LINEAR_CROSS_ENTROPY_BACKWARD,"linear_cross_entropy_backward",GEMM,      "m n k batch", "gradient of the logits, which are recomputed", \
    linear_cross_entropy_backward, linear_cross_entropy, LIBRARY(linear_cross_entropy)) \
  X(GRADIENT_NORM,            "gradient_norm",            MEMORY,    "elements",    "the norm of gradients; an executor's trainer computes it", \
    by_trainer, NONE, NONE) \
  X(GRADIENT_CLIP,            "gradient_clip",            MEMORY,    "elements",    "gradients times a coefficient; in executors, optimizer_step multiplies", \
    by_trainer, NONE, NONE) \
  X(OPTIMIZER_STEP,           "optimizer_step",           MEMORY,    "elements tensors states main; decay beta1 beta2 epsilon", "optimizer update of some parameters", \
    optimizer_step, NONE, PLAIN(optimizer_step)) \
  X(HOST_OPTIMIZER_STEP,      "host_optimizer_step",      HOST,      "elements tensors states main; decay beta1 beta2 epsilon", "the same by the host's processor, in host memory", \
    optimizer_step, NONE, NONE) \
  X(HOST_COPY,                "host_copy",                HOST,      "elements",    "copy or conversion by the host's processor, in host memory", \
    copy_elements, NONE, NONE)

/* Collectives and exchanges among the ranks of a group. `bytes` of a call: one rank's contribution.
 * Columns as above, without cost, letters and fast; scratch: cuda_exact_S_group_scratch. */
#define PLAN_COLLECTIVES(X) \
  X(ALL_REDUCE,     "all_reduce",     "sum everywhere", \
    all_reduce, NONE) \
  X(ALL_REDUCE_MAX, "all_reduce_max", "maximum everywhere", \
    all_reduce_max, NONE) \
  X(ALL_GATHER,     "all_gather",     "every rank gets all parts; bytes of one part", \
    all_gather, NONE) \
  X(REDUCE_SCATTER, "reduce_scatter", "every rank gets one part of the sum; bytes of the whole", \
    reduce_scatter, NONE) \
  X(ALL_TO_ALL,     "all_to_all",     "each rank sends a part to each; bytes of all parts of one rank", \
    all_to_all, all_to_all) \
  X(SHIFT,          "shift",          "each rank sends to the one `by` further on, around; bytes of one part", \
    shift, NONE)
/* clang-format on */

/*
 * dims[COLLECTIVE_DETAIL] of a collective:
 *   all_to_all  of tokens that go once to each rank with an expert of theirs, as DeepEP and HybridEP send them:
 *               the size of the tokens, where `bytes` is that of their copies; 0: any other
 *   shift       by how many ranks, below the size of the group; copy engines send, no kernel does
 */
enum { COLLECTIVE_DETAIL = 0 };

/*
 * The layouts of a product's operands: C[m, n] = A[m, k] B[n, k]^T (forward of a linear), A[m, k]
 * B[k, n] (gradient of its input), A[k, m]^T B[k, n] (gradient of its weight), and the last of
 * these for columnwise fp8 copies, which are already transposed: A[m, k] B[n, k]^T.
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

/* Scores of a router. SOFTMAX: over the chosen experts; PRE_SOFTMAX: over all experts, before the
 * choice; the others: a function of each expert's logit, divided by their sum. */
typedef enum router_score {
  ROUTER_SOFTMAX,
  ROUTER_PRE_SOFTMAX,
  ROUTER_SIGMOID,
  ROUTER_SQRT_SOFTPLUS
} router_score;

/*
 * The columns of a head that a rotary embedding pairs. HALVES: the first `dim` columns, i with i +
 * dim / 2; NEIGHBOURS: the same columns, 2 i with 2 i + 1; LAST_NEIGHBOURS: the last `dim` columns
 * of the head, 2 i with 2 i + 1, which are written as halves.
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
enum { GEMM_PARTS = 4 };                               /* dim of gemm */
/* Scalar of the cross_entropy kernels: each represents PyTorch's kernels of several operators, not a
 * compiled one. */
enum { CROSS_ENTROPY_EAGER };

#endif
