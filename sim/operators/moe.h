/*
 * Operators of mixture-of-experts layers, and a few of multi-token prediction.
 */
#ifndef OFFSIM_SIM_OPERATORS_MOE_H
#define OFFSIM_SIM_OPERATORS_MOE_H

#include "sim/graph/emitter.h"

/*
 * STEP: one kernel forward, one backward.
 *   in: any    out: any    saved: any
 *   scalars: those of either kernel
 * Forward reads the inputs and writes the outputs; backward reads the gradients of the outputs,
 * then the saved tensors, and writes a gradient for every input that requires one, the weights'
 * last. Either kernel writes its temporaries first.
 */
enum step_dims {
  MOE_STEP_FORWARD, /* kernel kinds */
  MOE_STEP_BACKWARD,
  MOE_STEP_D0, /* the kernel's shape; if the kernel counts elements, the first is the output's
                  elements */
  MOE_STEP_D1,
  MOE_STEP_D2,
  MOE_STEP_D3,
  MOE_STEP_FORWARD_BYTES, /* temporaries */
  MOE_STEP_BACKWARD_BYTES,
  MOE_STEP_ROWS,          /* the tensor of row owners, read last; 0: none */
  MOE_STEP_FORWARD_MOVED, /* bytes that the real kernels read and write; 0: its operands */
  MOE_STEP_BACKWARD_MOVED
};
enum step_flags {
  MOE_STEP_WAITS = 1 << 0, /* the host copies counts from the device before it */
  MOE_STEP_FORWARD_ONLY = 1 << 1,
  MOE_STEP_POLLS =
      1 << 2, /* EXCHANGE: the host waits for counts that a kernel gives it before it */
  MOE_STEP_LISTED = 1 << 3 /* EXCHANGE: gathers into, or scatters from, a list of equal parts */
};
extern const operator_kind operator_step;

/*
 * EXCHANGE
 *   in: x [, table]    out: y
 *   dims: collective forward, backward, group, ...    flags: step_flags
 * Backward COLLECTIVE_KINDS: no communication; the rank copies its own part. A restoring index,
 * which the previous permutation has written, routes rows to their experts: each expert has an
 * equal part of the rows from each rank. If a table routes them instead, each token has a row for
 * each of its experts, or one for each rank that has some of them.
 */
enum exchange_rows { ROWS_IN_SLOTS, ROWS_BY_EXPERT, ROWS_BY_TOKEN };
enum exchange_dims {
  EXCHANGE_FORWARD,
  EXCHANGE_BACKWARD,
  EXCHANGE_GROUP,
  EXCHANGE_RESTORE, /* a tensor; 0: equal parts in order */
  EXCHANGE_RANKS,
  EXCHANGE_EXPERTS, /* of one rank */
  EXCHANGE_BACK,    /* from the experts */
  EXCHANGE_ROWS,    /* exchange_rows */
  EXCHANGE_COPIES,  /* rows of tokens that go once to each rank; 0: each row of what is sent */
  EXCHANGE_TOKENS   /* ... of as many tokens */
};
extern const operator_kind operator_exchange;

/*
 * EXCHANGE_TABLE
 *   in: map of chosen experts
 *   out: number of rows that will arrive for each expert; the experts of each rank that a token
 *     goes to, a bit each [tokens, ranks]
 *   saved: both outputs
 *   dims: group
 */
enum exchange_table_dims { TABLE_GROUP };
extern const operator_kind operator_exchange_table;

/*
 * GATHER_PERMUTE: the gathered rows are in Megatron's global memory buffer, which all layers share;
 * only gradients have separate memory.
 *   in: x, index    out: rows in expert order    saved: index
 *   dims: tokens of this rank, gathered tokens, width    flags: step_flags
 */
enum gather_permute_dims { GATHER_TOKENS, GATHER_ALL_TOKENS, GATHER_WIDTH };
extern const operator_kind operator_gather_permute;

/*
 * GATING
 *   in: x, weight [, bias]    out: logits    saved: x, weight [, bias]
 *   dims: tokens, width, experts
 */
enum gating_dims { GATING_TOKENS, GATING_WIDTH, GATING_EXPERTS };
extern const operator_kind operator_gating;

/*
 * GROUPED_LINEAR
 *   in: x, weight [, bias]    out: y [, fp8 copy]    saved: x or its fp8 copy, weight
 *   dims: rows, inputs, outputs, experts, bytes of the fp8 operands (see fp8.h)
 */
enum grouped_linear_dims {
  GROUPED_ROWS,
  GROUPED_INPUTS,
  GROUPED_OUTPUTS,
  GROUPED_EXPERTS,
  GROUPED_FORWARD_BYTES,    /* of the operand that only forward needs; 0: not fp8 */
  GROUPED_GRADIENT_BYTES,   /* of the quantised gradient */
  GROUPED_REQUANTIZE_BYTES, /* of the input quantised in backward, when the original is saved */
  GROUPED_COUNTS            /* the tensor of row owners; 0: all experts have equally many rows */
};
extern const operator_kind operator_grouped_linear;

/*
 * HOST_EXPERTS: both linears of experts whose weights are on the host, and between them SwiGLU times
 * probabilities.
 *   in: x, probs, first weight, second weight    out: y, the first product
 *   saved: x, [the first product,] probs
 *   dims: rows, hidden, outputs of the first linear, inputs of the second, experts; layer; chunks, buffers;
 *     the tensor of row owners
 * With HOST_EXPERTS_RECOMPUTES backward makes the first product again.
 */
enum host_experts_dims {
  HOST_EXPERTS_ROWS,
  HOST_EXPERTS_HIDDEN,
  HOST_EXPERTS_WIDE,
  HOST_EXPERTS_NARROW,
  HOST_EXPERTS_COUNT,
  HOST_EXPERTS_LAYER,
  HOST_EXPERTS_CHUNKS,
  HOST_EXPERTS_BUFFERS,
  HOST_EXPERTS_OWNERS /* 0: all experts have equally many rows */
};
enum host_experts_flags { HOST_EXPERTS_RECOMPUTES = 1 << 0 };
extern const operator_kind operator_host_experts;

/*
 * WEIGHTED: rows of a times their probabilities.
 *   in: a, probs    out: y    saved: a, probs
 *   dims: rows, width, bytes of an element of the product before it is converted
 */
enum weighted_dims { WEIGHTED_ROWS, WEIGHTED_WIDTH, WEIGHTED_ELEMENT_BYTES };
extern const operator_kind operator_weighted;
/*
 * SCALED_BIAS: x += bias x probability, in place.
 *   in: x, probs, bias    out: a view of x    saved: bias, probs
 *   dims: as WEIGHTED
 */
extern const operator_kind operator_scaled_bias;

/*
 * The backward of each is the forward of the other.
 * SLICES
 *   in: x    out: views of x's rows (the tensors first .. first + count - 1)
 * JOIN_SLICES
 *   in: those tensors    out: y
 * dims: first, count
 */
enum slices_dims { SLICES_FIRST, SLICES_COUNT };
extern const operator_kind operator_slices, operator_join_slices;

/*
 * COUNT_CHOICES
 *   in: scores    out: how often all ranks that share a sequence choose each expert in it
 *   dims: tokens, experts, k, sequences
 */
/* ATTRIBUTE: a module's attribute is set to the input; its number in the chunk */
enum attribute_dims { ATTRIBUTE_NUMBER };
extern const operator_kind operator_attribute;

enum count_choices_dims { COUNT_TOKENS, COUNT_EXPERTS, COUNT_TOPK, COUNT_SEQUENCES, COUNT_GROUP };
extern const operator_kind operator_count_choices;

/*
 * ATTACH_LOSS
 *   in: x, loss [, counts]    out: a view of x    saved: [scores] [, counts]
 *   dims: tokens, experts, k
 * Backward starts the gradient of the loss: scalars[0] everywhere. With saved scores, the loss
 * balances them: the gradient is scalars[0] times how often the expert is chosen in each of
 * scalars[1] sequences. The counts include the choices of other ranks that share a sequence.
 */
enum attach_loss_dims { ATTACH_TOKENS, ATTACH_EXPERTS, ATTACH_TOPK, ATTACH_SCORES };
extern const operator_kind operator_attach_loss;

#endif
