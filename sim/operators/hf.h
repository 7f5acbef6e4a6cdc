/*
 * Operators of eager PyTorch, one row each (sim/operators/operators.h has those that Megatron's
 * modules share with it: dropout, split).
 *
 * Saved lists hold only tensors that some gradient needs, in the order in which autograd packs
 * them: operands by the name of the derivative's argument, then results. Autograd packs operands
 * before the kernel runs and results after it; custom autograd functions pack everything after
 * it.
 */
#ifndef OFFSIM_SIM_OPERATORS_HF_H
#define OFFSIM_SIM_OPERATORS_HF_H

#include "sim/graph/emitter.h"

/* ---- matmul.c -------------------------------------------------------------------------------- */

/* LINEAR (mm, addmm): in: x as rows, transposed view of the weight [, bias]  out: y
 * saved: [weight view] [, x]  dims: rows, inputs, outputs. */
extern const operator_kind operator_hf_linear;
/* MATMUL (bmm): in: a [.., m, k], b [.., k, n]  out: c  saved: [b] [, a]  dims: batch, m, n, k. */
extern const operator_kind operator_hf_matmul;

/* ---- elementwise_hf.c ------------------------------------------------------------------------ */

/* ADD: in: a, b  out: a + b; b may be broadcast when it needs no gradient. */
extern const operator_kind operator_hf_add;
/* SUBTRACT: in: a, b of one shape  out: a - b. */
extern const operator_kind operator_hf_subtract;
/* PLUS: in: x  out: x plus a number  dims: the number's bits. */
extern const operator_kind operator_hf_plus;
/* CLAMP: in: x  out: the nearest number up to a limit, with flags 1 from its negative on  saved: x
 * dims: the limit's bits. No arithmetic here. */
extern const operator_kind operator_hf_clamp;
/* SIGMOID: in: x  out: y  saved: y. */
extern const operator_kind operator_hf_sigmoid;
/* SOFTPLUS: in: x  out: y  saved: x. */
extern const operator_kind operator_hf_softplus;
/* COPY: in: x  out: y, another layout or type of the same elements. */
enum { HF_COPY_OF_ROWS = 1 }; /* flags: it takes as long as a copy of a contiguous tensor */
extern const operator_kind operator_hf_copy;
/* SILU: in: x  out: y  saved: x. */
extern const operator_kind operator_hf_silu;
/* GELU: in: x  out: y  saved: x  flags: activation_function. */
extern const operator_kind operator_hf_gelu;
/* TANH: in: x  out: y  saved: y. */
extern const operator_kind operator_hf_tanh;

/* SCALE: in: x  out: x times a number  dims: the number's bits. */
extern const operator_kind operator_hf_scale;

/* MULTIPLY: in: a, b of one shape, or one of them to be broadcast  out: a b  saved: [b] [, a]. */
extern const operator_kind operator_hf_multiply;
/* SQUARE (pow): in: x  out: x^2  saved: x. */
extern const operator_kind operator_hf_square;
/* ROW_MEAN: in: x  out: one number for each row. */
extern const operator_kind operator_hf_row_mean;
/* RSQRT: in: x  out: (x + norm_epsilon)^-1/2  saved: the result. */
extern const operator_kind operator_hf_rsqrt;

/* GAIN: in: a zero-centred gain  out: 1 + gain in fp32. */
extern const operator_kind operator_hf_gain;
/* LAYER_NORM (native_layer_norm): in: x, weight, bias  out: y, mean, rstd
 * saved: bias, x, weight, mean, rstd  dims: rows, width. */
extern const operator_kind operator_hf_layer_norm;
/* RMS_NORM (_fused_rms_norm): in: x, weight  out: y, rstd  saved: x, weight, rstd
 * dims: rows, width. */
extern const operator_kind operator_hf_rms_norm;

/* ---- embedding.c ----------------------------------------------------------------------------- */

/* EMBEDDING: in: ids, table  out: rows  saved: the ids  dims: ids, width. */
extern const operator_kind operator_hf_embedding;

/* ---- rotary.c -------------------------------------------------------------------------------- */

/* ROTARY_TABLES: out: cos, sin, or one table of complex numbers  dims: the base (node_number). No
 * backward. */
extern const operator_kind operator_hf_rotary_tables;
/* ROTATE_HALF: in: x  out: the halves of x's last dimension exchanged, one with its sign changed.
 * flags: 1 = its even and odd elements instead. */
extern const operator_kind operator_hf_rotate_half;
/* INTERLEAVED_TABLE: in: a rotary table  out: the first half of its columns, each twice. No
 * backward. */
extern const operator_kind operator_hf_interleaved_table;
/* POSITION_SCALE: out: a number for each position. No backward. */
extern const operator_kind operator_hf_position_scale;
/* ROTATE_COMPLEX: in: x, a table, both as complex numbers  out: their product  saved: the table. */
extern const operator_kind operator_hf_rotate_complex;
/* SLICE: in: x  out: a view of some of its last dimension's elements, whose gradient is a zeroed
 * tensor of the size of x with a copy of theirs  dims: the first element, from one to the next. */
extern const operator_kind operator_hf_slice;
/* RELAYOUT: in: x  out: a view of x whose gradient comes in another layout: backward copies it. */
extern const operator_kind operator_hf_relayout;

/* ---- sdpa.c ---------------------------------------------------------------------------------- */

/* SDPA: in: q, k, v [, bias of the scores]  out: o, lse, two numbers of the random generator
 * saved: [bias,] k, q, v, lse, o, both
 * dims: batch, heads, q_len, kv_len, width of a query, kv heads, width of a value. flags: 1 = cuDNN's
 * kernels. */
extern const operator_kind operator_hf_sdpa;
/* FLASH_ATTENTION (the flash-attn package): in: q, k, v [, sinks]; saved: q, k, v, o, lse, the
 * generator's [, sinks]. dims: those, window (0: none). */
extern const operator_kind operator_hf_flash_attention;

/* WIDEN (pad): in: x [b, heads, s, width]  out: y [b, s, heads, more], zeros after each row of x. No
 * arithmetic here. */
extern const operator_kind operator_hf_widen;

/* ---- ulysses.c ------------------------------------------------------------------------------- */

/* ULYSSES_EXCHANGE: in: x [b, heads, positions, width] out: y, more of one of the two middle
 * dimensions and less of the other: the all-to-all of context parallel ranks. */
extern const operator_kind operator_ulysses_exchange;

/* ---- eager_attention.c ----------------------------------------------------------------------- */

/* CAUSAL_MASK: out: what is added to scores [rows, columns]; of type byte: whether a key is seen.
 * dims: the sliding window, 0 = none. */
extern const operator_kind operator_hf_causal_mask;
/* MASK_BIAS: in: a mask of bytes  out: 0 where it is set, the lowest number elsewhere. */
extern const operator_kind operator_hf_mask_bias;
/* REPEAT: in: x [b, heads, s, width]  out: y, each head several times. */
extern const operator_kind operator_hf_repeat;
/* SOFTMAX: in: x  out: y  saved: y  dims: rows, columns. */
extern const operator_kind operator_hf_softmax;
/* JOIN_SINKS: in: x [b, heads, queries, keys], a score for each head  out: x with one more column.
 * No arithmetic here, as in the next two. */
extern const operator_kind operator_hf_join_sinks;
/* LESS_ROW_MAX: in: x  out: x minus the maxima of its rows; the maxima, their columns
 * saved: the columns. */
extern const operator_kind operator_hf_less_row_max;
/* JOIN_SHARED: in: x [b, heads, s, width], y [b, 1, s, width]  out: the rows of x, each with that of
 * y after it. */
extern const operator_kind operator_hf_join_shared;

/* ---- linear_attention.c ---------------------------------------------------------------------- */

/* CAUSAL_CONV (the causal-conv1d package): in: x [b, s, channels], weight [channels, width]
 * out: silu of the convolution  saved: x, weight. */
extern const operator_kind operator_causal_conv;
/* DECAY_RATE: in: A_log, a parameter  out: -exp(A_log) in fp32, exp(A_log)  saved: the latter. */
extern const operator_kind operator_decay_rate;
/* ADD_BIAS: in: x, a vector that trains  out: x + vector. */
extern const operator_kind operator_hf_add_bias;
/*
 * DELTA_RULE (fla): in: q, k [b, s, key heads, width], v [b, s, heads, width of a value], decay and
 * beta [b, s, heads]
 * out: o like v, normed q and the inverse lengths of q, both of k, v, sums of the decay, inverses
 * saved: all these but o, beta twice before the last
 * dims: batch, tokens, key heads, heads, width of a key, width of a value, chunk
 */
enum { DELTA_CHUNK = 64 };
extern const operator_kind operator_delta_rule;

/* ---- experts_hf.c ---------------------------------------------------------------------------- */

/* TOPK: in: x [rows, columns]  out: the largest k of each row, their columns  saved: the columns. */
extern const operator_kind operator_hf_topk;
/* NORMALISE (/=): in: x [rows, k]  out: x over the sums of its rows, in place; the sums, a copy of x
 * saved: the sums, the copy. */
extern const operator_kind operator_hf_normalise;
/* INTEGERS (sort, //, histc and cumsum, index_put): in: integers  out: others. No backward. */
extern const operator_kind operator_hf_integers;
/* GATHER (index): in: x, indices of its rows  out: those rows  saved: the indices. */
extern const operator_kind operator_hf_gather;
/* GATHER_ELEMENTS (gather): in: x [rows, columns], columns of it  out: those elements
 * saved: the columns, x. */
extern const operator_kind operator_hf_gather_elements;
/* MASKED (masked_fill): in: x, a mask of bytes  out: x, 0 where the mask is set  saved: the mask. */
extern const operator_kind operator_hf_masked;
/* SUM_PARTS: in: x [rows, parts, width]  out: y [rows, width]. */
extern const operator_kind operator_hf_sum_parts;
/* GROUPED_LINEAR (_grouped_mm): in: x, transposed view of all experts' weights, offsets  out: y
 * saved: [weight view], offsets [, x]  dims: rows, inputs, outputs, experts. */
extern const operator_kind operator_hf_grouped_linear;

/* ---- experts_llama4.c ------------------------------------------------------------------------ */

/* SCATTER: in: x [rows, k], columns  out: y [rows, more], x at its columns and -inf elsewhere
 * saved: the columns. */
extern const operator_kind operator_hf_scatter;
/* TILE (repeat): in: x  out: y, several copies of x one after the other. */
extern const operator_kind operator_hf_tile;
/* SUM_TILES (sum): in: x  out: y, the sum of its tiles. */
extern const operator_kind operator_hf_sum_tiles;
/* BATCHED_LINEAR (bmm): in: x [experts, rows, inputs], view of all experts' weights
 * [experts, inputs, outputs]  out: y  saved: [weight view] [, x]
 * dims: experts, rows, outputs, inputs. */
extern const operator_kind operator_hf_batched_linear;
/* ZEROS: out: zeros. No backward. */
extern const operator_kind operator_hf_zeros;
/* SELECT: in: x [parts, rows, width]  out: a view of one part, whose gradient is a zeroed tensor of
 * the size of x with a copy of its own  dims: the part. */
extern const operator_kind operator_hf_select;
/* PUT (copy_ into a view): in: x [parts, rows, width], y [rows, width]  out: x, one part of which is
 * overwritten by y  dims: the part. */
extern const operator_kind operator_hf_put;

/* ---- cross_entropy.c ------------------------------------------------------------------------- */

/* ignore_index: the loss ignores tokens with this label. */
enum { HF_IGNORED_LABEL = -100 };

/* LOG_SOFTMAX: in: logits  out: y  saved: y  dims: rows, columns. */
extern const operator_kind operator_hf_log_softmax;
/* NLL_LOSS: in: log probabilities, labels  out: loss, total weight  saved: both inputs, the weight
 * dims: rows, columns. */
extern const operator_kind operator_hf_nll_loss;
/* PAD: in: x out: x with one more column. No backward. */
extern const operator_kind operator_hf_pad;

/* ---- fused_log_probs.c ----------------------------------------------------------------------- */

/* FUSED_LOG_PROBS: in: x as rows, weight of the output layer out: log-probabilities and
 * entropies of the tokens saved: x, weight dims: rows, width, vocabulary. */
extern const operator_kind operator_fused_log_probs;

#endif
