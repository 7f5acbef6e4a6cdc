/*
 * Operators of mixture-of-experts layers, and a few of multi-token prediction.
 */
#ifndef OFFSIM_SIM_MODEL_OPERATORS_MOE_H
#define OFFSIM_SIM_MODEL_OPERATORS_MOE_H

#include "sim/model/emitter.h"

/*
 * STEP: one kernel forward, one backward. in: any  out: any  saved: any
 * Backward makes a gradient for every input that wants one. With a view as output the gradient of
 * the first input is that of the output.
 */
enum step_dims {
  MOE_STEP_FORWARD, /* kernel kinds */
  MOE_STEP_BACKWARD,
  MOE_STEP_D0, /* the kernel's shape */
  MOE_STEP_D1,
  MOE_STEP_D2,
  MOE_STEP_FORWARD_BYTES, /* temporaries */
  MOE_STEP_BACKWARD_BYTES
};
enum step_flags {
  MOE_STEP_WAITS = 1 << 0, /* the host waits for the device before it */
  MOE_STEP_FORWARD_ONLY = 1 << 1
};
extern const operator_kind operator_step;

/* EXCHANGE: in: x  out: y. dims: collective forward, backward, group. flags: step_flags.
 * A backward of COLLECTIVE_KINDS: no communication, the own part is copied. */
enum exchange_dims { EXCHANGE_FORWARD, EXCHANGE_BACKWARD, EXCHANGE_GROUP };
extern const operator_kind operator_exchange;

/*
 * Megatron's global memory buffer, which all layers share, holds the gathered rows; only gradients
 * have memory of their own. GATHER_PERMUTE: in: x, index  out: rows in expert order  saved: index.
 * dims: tokens of this rank, gathered tokens, width. flags: step_flags.
 */
enum gather_permute_dims { GATHER_TOKENS, GATHER_ALL_TOKENS, GATHER_WIDTH };
extern const operator_kind operator_gather_permute;

/* GATING: in: x, weight [, bias]  out: logits  saved: x, weight [, bias]. dims: tokens, width,
 * experts. */
enum gating_dims { GATING_TOKENS, GATING_WIDTH, GATING_EXPERTS };
extern const operator_kind operator_gating;

/* GROUPED_LINEAR: in: x, weight [, bias]  out: y [, fp8 copy]  saved: x or its fp8 copy, weight.
 * dims: rows, inputs, outputs, experts, bytes of the fp8 operands (see fp8.h). */
enum grouped_linear_dims {
  GROUPED_ROWS,
  GROUPED_INPUTS,
  GROUPED_OUTPUTS,
  GROUPED_EXPERTS,
  GROUPED_FORWARD_BYTES,   /* of the operand that only forward needs; 0: not fp8 */
  GROUPED_GRADIENT_BYTES,  /* of the quantised gradient */
  GROUPED_REQUANTIZE_BYTES /* of the input quantised in backward, when the original is saved */
};
extern const operator_kind operator_grouped_linear;

/* WEIGHTED: a x probability of its row.  in: a, probs  out: y  saved: a, probs.
 * dims: rows, width, bytes of an element of the product before it is converted. */
enum weighted_dims { WEIGHTED_ROWS, WEIGHTED_WIDTH, WEIGHTED_ELEMENT_BYTES };
extern const operator_kind operator_weighted;
/* SCALED_BIAS: x += bias x probability, in place.  in: x, probs, bias  out: a view of x  saved:
 * bias, probs. dims: as WEIGHTED. */
extern const operator_kind operator_scaled_bias;

/* SLICES: in: x  out: views of x's rows (the tensors first .. first + count - 1).
 * JOIN_SLICES: in: those tensors  out: y. Backward of the one is forward of the other. dims: first,
 * count */
enum slices_dims { SLICES_FIRST, SLICES_COUNT };
extern const operator_kind operator_slices, operator_join_slices;

/* ATTACH_LOSS: in: x, loss  out: a view of x. Backward starts the gradient of the loss. saved:
 * loss. */
extern const operator_kind operator_attach_loss;

#endif
