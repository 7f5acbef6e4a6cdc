/*
 * Operators of low-rank adapters and of linears with 4-bit weights. A tensor that a custom
 * autograd function keeps as an attribute of its context, not with save_for_backward, is not in
 * the saved list: hooks do not see it.
 */
#ifndef OFFSIM_SIM_OPERATORS_LORA_H
#define OFFSIM_SIM_OPERATORS_LORA_H

#include "sim/graph/emitter.h"

/* ---- lora.c ---------------------------------------------------------------------------------- */

/*
 * AUTOCAST_WEIGHT: an fp32 parameter in 16 bits, as torch.autocast casts it for a product; backward
 * casts its gradient back.
 *   in: weight    out: weight in 16 bits
 */
extern const operator_kind operator_autocast_weight;

/*
 * LINEAR_4BIT: bitsandbytes' MatMul4Bit. Forward and backward each dequantise the whole weight into
 * a temporary.
 *   in: x, weight, absmax, nested_absmax [, bias]    out: y    saved: nothing
 */
enum {
  LINEAR_4BIT_ROWS,
  LINEAR_4BIT_INPUTS,
  LINEAR_4BIT_OUTPUTS,
  LINEAR_4BIT_OFFSET
}; /* dims; the last one is the parameter nested_offset */
extern const operator_kind operator_linear_4bit;

/*
 * LINEAR_8BIT (linear_8bit.c): bitsandbytes' MatMul8bitLt with a frozen weight. Forward quantises the
 * input by rows; backward makes the weight in 16 bits, a temporary. The context keeps the input as an
 * attribute. in: x, weight in bytes, scales of its rows [, bias]    out: y    held: x
 */
enum { LINEAR_8BIT_ROWS, LINEAR_8BIT_INPUTS, LINEAR_8BIT_OUTPUTS }; /* dims */
extern const operator_kind operator_linear_8bit;

/* The frozen weight, [outputs, inputs] or packed with the scales of its blocks, and its bias or 0.
 */
typedef struct lora_base {
  tensor_id weight;
  tensor_id absmax, nested_absmax, nested_offset; /* 4 bits; else 0 */
  tensor_id bias;
} lora_base;

/* The base with this weight: its tensors follow the weight in the order of lora_base. */
lora_base lora_base_at(tensor_id weight, bool quantized, bool biased);
/* The factor of B(A(x)). */
double lora_scale(const settings *s);

/* Elements that share a scale. Scales are bytes; blocks of them share a scale of their own. */
enum { LORA_BLOCK_ELEMENTS = 64, LORA_BLOCK_SCALES = 256 };

/* Dequantises a packed weight of outputs x inputs into a temporary of `type`. The scales of its
 * blocks are themselves quantised, so they come first. `packed`: weight, absmax, nested_absmax,
 * nested_offset. */
ref emit_dequantized(emitter *e, const graph *g, const tensor_id *packed, dtype type,
                     int64_t outputs, int64_t inputs);

/* ---- lora_kernels.c -------------------------------------------------------------------------- */

/*
 * LORA_PROJECTIONS: Axolotl's LoRA_QKV and LoRA_O: up to three linears with the same input, and
 * their adapters.
 *   in: x [, x dropped], A and B of each, in the type of x    out: y of each
 *   saved: x, the input of A, A and B of each
 * LORA_MLP: LoRA_MLP: gate, up, SwiGLU, down.
 *   in: x [, x dropped], A and B of gate, up and down    out: y, gate, up
 *   saved: x, the input of A, gate, up, A and B of each
 * dims: for each linear the first parameter of its base (lora_base_at); for each linear its A,
 * which B follows.
 */
enum lora_kernel_flags {
  LORA_DROPPED = 1 << 0,   /* dropout made x dropped */
  LORA_QUANTIZED = 1 << 1, /* 4-bit weights */
  LORA_BIASED = 1 << 2     /* every linear has a bias */
};
extern const operator_kind operator_lora_projections, operator_lora_mlp;

#endif
