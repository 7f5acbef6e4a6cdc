/* Operators of linkedin/Liger-Kernel 0.8 (liger_kernel/ops/), which Axolotl's plugin patches into
 * a model. */
#ifndef OFFSIM_SIM_OPERATORS_LIGER_H
#define OFFSIM_SIM_OPERATORS_LIGER_H

#include "sim/graph/emitter.h"

/*
 * LIGER_GLU (swiglu.py, LigerSiLUMulFunction). Backward overwrites the saved tensors with the
 * gradients.
 *   in: gate, up    out: silu(gate) * up    saved: gate, up
 */
extern const operator_kind operator_liger_glu;

/*
 * LIGER_LINEAR_CROSS_ENTROPY (fused_linear_cross_entropy.py): output layer and loss, a chunk of
 * tokens at a time, so that only the logits of one chunk exist at once. Forward also computes the
 * gradients.
 *   in: x as rows, weight, labels    out: loss, gradient of x [, gradient of the weight]
 *   saved: the gradients
 *   dims: rows, width of x, vocabulary
 */
extern const operator_kind operator_liger_linear_cross_entropy;

#endif
