/*
 * The operator table: one row for each kind of autograd node of Megatron's modules, with the
 * functions that issue its forward and its backward. Each row is in the file that is named after
 * its subject; moe.h lists those of mixture-of-experts layers, hf.h those of eager PyTorch.
 *
 * An operator declares its temporaries itself (emitter.h). The node's saved list holds the
 * tensors that backward needs, in the order given here.
 */
#ifndef OFFSIM_SIM_OPERATORS_OPERATORS_H
#define OFFSIM_SIM_OPERATORS_OPERATORS_H

#include "sim/graph/emitter.h"

/* ---- linear.c -------------------------------------------------------------------------------- */

/*
 * LINEAR
 *   in: x, weight [, bias]    out: y [, fp8 copy of x]    saved: x or its fp8 copy
 * NORM_LINEAR
 *   in: x, weight, gamma [, beta] [, bias]    out: y, normed or its fp8 copy, rstd [, mean]
 *   saved: x, normed or its fp8 copy, rstd [, mean]
 * dims: rows of the local input (with LINEAR_SCATTERS_OUTPUT: of the output), inputs, outputs,
 *   rows of the GEMM
 */
enum linear_flags {
  LINEAR_HAS_BIAS = 1 << 0,        /* added here */
  LINEAR_BIAS_APART = 1 << 1,      /* ... by a kernel of its own into a new tensor */
  LINEAR_GATHERS_INPUT = 1 << 2,   /* sequence parallel, column */
  LINEAR_SCATTERS_OUTPUT = 1 << 3, /* sequence parallel, row */
  LINEAR_REDUCES_OUTPUT = 1 << 4,  /* tensor parallel, row */
  LINEAR_REDUCES_DGRAD = 1 << 5,   /* tensor parallel, column */
  LINEAR_GATHER_BUFFER = 1 << 6,   /* gathered input in Megatron's global memory buffer */
  LINEAR_HAS_BETA = 1 << 7,        /* NORM_LINEAR: LayerNorm */
  LINEAR_DEFERS_WGRAD = 1 << 8,    /* the gradient waits in a stash for the pipeline flush */
  LINEAR_QUANTIZES = 1 << 9,       /* fp8: the saved operand is `outputs` last */
  LINEAR_KEEPS_ORIGINAL = 1 << 10, /* ... but it is x, quantised again in backward */
  /* Beside products, in user buffers (sim/graph/user_buffers.h): */
  LINEAR_RINGS_GATHER = 1 << 11,    /* of x in forward, or of the output's gradient */
  LINEAR_RINGS_SUM = 1 << 12,       /* of the output, by parts of rows */
  LINEAR_PIPELINES_SUM = 1 << 13,   /* ... by parts of columns */
  LINEAR_GATHERS_IN_BULK = 1 << 14, /* x in backward */
  LINEAR_SUMS_IN_BULK = 1 << 15     /* the input's gradient */
};
/* The last is a user_linear. */
enum { LINEAR_ROWS, LINEAR_INPUTS, LINEAR_OUTPUTS, LINEAR_GEMM_ROWS, LINEAR_USER };
extern const operator_kind operator_linear, operator_norm_linear;

/* ---- norm.c ---------------------------------------------------------------------------------- */

/*
 * NORM
 *   in: x, gamma [, beta]    out: y, rstd [, mean]    saved: x, rstd [, mean]
 *   dims: rows, width    flags: 1 = LayerNorm (mean and beta), 0 = RMSNorm
 */
extern const operator_kind operator_norm;
/*
 * UNSCALED_NORM
 *   in: x    out: y, rstd    saved: x, rstd    dims: rows, width
 */
extern const operator_kind operator_unscaled_norm;

/* ---- attention.c ----------------------------------------------------------------------------- */

/*
 * SPLIT: backward joins the gradients in a new tensor.
 *   in: x    out: up to five views of x, side by side in each of its rows
 *   dims: rows (0: as many as x has positions)
 */
extern const operator_kind operator_split;
/*
 * ROPE
 *   in: x    out: y [, cos, sin]    saved: [cos, sin]
 *   dims: tokens, heads, dim, micro-batch size, rope_pairs
 *   flags: 1 = the unfused sequence of kernels, whose products save cosine and sine
 */
extern const operator_kind operator_rope;
/*
 * MLA_KEY_VALUE
 *   in: kv by head, rotary part    out: key, value
 *   dims: tokens, heads, rotary width, micro-batch size
 */
extern const operator_kind operator_mla_key_value;
/*
 * ATTENTION
 *   in: q, k, v    out: o, lse [, rng]    saved: q, k, v, o, lse [, rng]
 *   dims: batch, heads, q_len, kv_len, qk_dim, v_dim, context parallel size, kv heads, window (0: none)
 */
enum attention_flags {
  ATTENTION_JOINED_GRADIENT = 1 << 0, /* dq, dk, dv are slices of one buffer */
  ATTENTION_FLASH = 1 << 1,           /* backward needs an fp32 accumulator of dq */
  ATTENTION_CP_GATHER = 1 << 2        /* context parallel by all-gather of k and v, else ring */
};
extern const operator_kind operator_attention;
/*
 * EXCHANGE_HEADS: over CP.
 *   in: x    out: y, the whole sequence of a part of the heads, or the reverse
 */
extern const operator_kind operator_exchange_heads;
/*
 * BATCHED_MATMUL
 *   in: a [batch, m, k], b [batch, k, n]    out: c    saved: a, b
 *   dims: batch, m, n, k
 * Tensors of four dimensions are [sequence, batch, heads, width]: each head's rows are a matrix.
 */
enum matmul_flags {
  MATMUL_BADDBMM = 1 << 0,   /* into a preallocated tensor that is not written */
  MATMUL_TRANSPOSED = 1 << 1 /* b is [batch, n, k] */
};
extern const operator_kind operator_batched_matmul;
/*
 * ATTENTION_MASK: bool [queries, keys], as Transformer Engine makes it for unfused attention
 * (dot_product_attention/utils.py, get_full_mask).
 *   out: mask
 */
enum attention_mask_flags { ATTENTION_MASK_BY_WHERE = 1 << 0 };
extern const operator_kind operator_attention_mask;
/*
 * SOFTMAX: a query sees the keys up to its own position.
 *   in: x    out: y    saved: y
 *   dims: rows, columns, queries, width of a query, by whose root the scores are divided
 */
enum softmax_flags {
  SOFTMAX_IN_PLACE =
      1 << 0 /* backward's kernel writes the gradient of x in the place of that of y */
};
extern const operator_kind operator_softmax;
/*
 * REPEAT
 *   in: x [.., .., heads, width]    out: y, each head several times
 */
extern const operator_kind operator_repeat;

/* ---- elementwise.c --------------------------------------------------------------------------- */

/*
 * COPY: backward passes the gradient on unchanged, or converts it if the types differ.
 *   in: x    out: y, another layout or type of the same elements
 */
extern const operator_kind operator_copy;
/*
 * DROPOUT
 *   in: x    out: y, mask    saved: mask
 *   dims: the probability (node_number), number of blocks; the rank has a part of each (0: as the
 *     residual stream is split)
 */
extern const operator_kind operator_dropout;
/*
 * BIAS_DROPOUT_ADD
 *   in: x, residual [, bias]    out: y [, mask]    saved: [mask]
 *   flags: 1 = the unfused kernels, 2 = with a bias, 4 = with dropout, of hidden_dropout
 */
enum { BDA_UNFUSED = 1, BDA_BIAS = 2, BDA_DROPOUT = 4 };
extern const operator_kind operator_bias_dropout_add;
/*
 * ADD
 *   in: x, y    out: x + y    flags: 1 = y is a bias (summed over rows in backward)
 */
extern const operator_kind operator_add;
/*
 * SCALE
 *   in: x    out: x times a number    dims: the number (node_number)
 */
extern const operator_kind operator_scale;
/*
 * JOIN_COLUMNS: the gradients of the parts are views of that of the output.
 *   in: views of the parts    out: their rows side by side
 */
extern const operator_kind operator_join_columns;
/*
 * ROLL: no backward.
 *   in: x    out: its rows shifted to the left by one    dims: rows, columns
 */
extern const operator_kind operator_roll;

/* ---- activation.c ---------------------------------------------------------------------------- */

/*
 * ACTIVATION: gated if there are twice as many inputs as outputs.
 *   in: x [, bias]    out: y    saved: x
 *   dims: rows, inputs, outputs, activation_function
 *   flags: 1 = with a bias, whose gradient is the sum of that of x
 */
extern const operator_kind operator_activation;
/*
 * GATED_ACTIVATION: the unfused act(a) * b.
 *   in: x    out: act, y [, linear]    saved: x, act [, linear]    dims: as above
 *   flags: 1 = act(a) * (b + offset), whose offset is 0: the sum `linear` is a new tensor
 */
extern const operator_kind operator_gated_activation;

/* ---- embedding.c ----------------------------------------------------------------------------- */

/*
 * DATA
 *   out: tensors of the micro-batch that the data loader put on the device
 */
extern const operator_kind operator_data;
/*
 * EMBEDDING
 *   in: indices, table    out: rows [, masked indices, mask]    saved: the indices looked up
 *   dims: tokens, width    flags: 1 = the table is split over TP: other ranks' indices are masked
 */
extern const operator_kind operator_embedding;
/*
 * ALL_REDUCE
 *   in: x    out: a view of x, which is summed over TP in place
 */
extern const operator_kind operator_all_reduce;
/*
 * SCATTER_SEQUENCE
 *   in: x    out: this rank's part of the sequence (a new tensor)
 *   flags: 1 = by reduce-scatter (a sum), 0 = by slicing and cloning
 */
extern const operator_kind operator_scatter_sequence;
/*
 * GATHER_SEQUENCE: backward reduce-scatters.
 *   in: x    out: the whole sequence
 */
extern const operator_kind operator_gather_sequence;

/* ---- loss.c ---------------------------------------------------------------------------------- */

/*
 * CROSS_ENTROPY: with fp32 logits softmax is a view of them.
 *   in: logits, labels    out: loss, softmax, target mask, masked target
 *   saved: softmax, target mask, masked target
 *   dims: tokens, vocabulary of this rank, TP
 */
enum cross_entropy_flags {
  CROSS_ENTROPY_COMPILED = 1,        /* Megatron's native fusion by the compiler */
  CROSS_ENTROPY_DIFFERENCE_APART = 2 /* ... which also keeps logits - max */
};
extern const operator_kind operator_cross_entropy;
/*
 * TE_CROSS_ENTROPY: the gradient is the fp32 output or, without it, overwrites the logits.
 *   in: logits, labels    out: loss [, gradient]    saved: the gradient
 *   dims: tokens, vocabulary of this rank, TP
 */
extern const operator_kind operator_te_cross_entropy;
/*
 * LINEAR_CROSS_ENTROPY
 *   in: x, weight, labels    out: loss, maxima, sums    saved: x, maxima, sums
 *   dims: tokens, vocabulary of this rank, TP, width of x
 */
extern const operator_kind operator_linear_cross_entropy;
/*
 * ATTACH_MTP_LOSS: the gradient of the losses is their weight.
 *   in: hidden states, losses    out: a view of the hidden states    saved: losses
 *   dims: micro-batch rows, positions, positions without a target
 */
extern const operator_kind operator_attach_mtp_loss;
/*
 * MASKED_SUM
 *   in: losses, mask    out: scalar    saved: mask
 */
extern const operator_kind operator_masked_sum;

#endif
