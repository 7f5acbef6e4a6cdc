/*
 * How Transformer Engine lays out fp8 operands (d0067d0d, pytorch/tensor/float8_tensor.py,
 * float8_blockwise_tensor.py, mxfp8_tensor.py).
 *
 * A matrix is quantised along its rows (rowwise: forward and input gradient) and, when the weight
 * gradient needs it, along its columns (columnwise). One kernel makes both copies; the copy that
 * only forward reads dies after forward.
 *
 *   recipe       copy of rows x cols           scales
 *   delayed      1 byte an element             one fp32 of the module's state: not counted
 *   tensorwise   1 byte an element             one fp32
 *   blockwise    1 byte an element             one fp32 for 128 elements along the product
 *   mxfp8        1 byte an element             one byte for 32, padded to tiles of 128 x 4
 *
 * Per-tensor recipes need no columnwise copy where the GEMM takes any layout (compute
 * capability 10.0).
 */
#ifndef OFFSIM_SIM_GRAPH_FP8_H
#define OFFSIM_SIM_GRAPH_FP8_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/config/settings.h"
#include "sim/plan/fp8_copy.h"
#include "sim/plan/kernels.h"

/* One scale for a tensor: delayed and tensorwise. */
bool fp8_is_per_tensor(const settings *s);

/* The scalar fp8 of kernels that quantise or multiply. `gradient`: an operand is the gradient of
 * an output. Delayed scales are state of the module, which the plan does not hold; the plan uses
 * the scale that a run begins with, 1. */
int fp8_code(const settings *s, bool gradient);

/* Bytes with scales; `rows` is the outer dimension of the bf16 tensor. */
int64_t fp8_rowwise_bytes(const settings *s, int64_t rows, int64_t cols);
int64_t fp8_columnwise_bytes(const settings *s, int64_t rows, int64_t cols);

/* Bytes that a linear saves of its input for the weight gradient: the columnwise copy.
 * `gathered`: backward gathers the input over TP again; per-tensor recipes gather the rowwise
 * copy. */
int64_t fp8_saved_bytes(const settings *s, int64_t rows, int64_t cols, bool gathered);
/* Bytes of the copy that only forward reads; 0 when one copy serves both. */
int64_t fp8_forward_bytes(const settings *s, int64_t rows, int64_t cols);
/* Which copy is saved. */
fp8_copies fp8_saved_copies(const settings *s, bool gathered);
/* Whether backward transposes gathered rowwise copies because the GEMM of the weight gradient
 * needs them transposed. */
bool fp8_transposes_gathered(const settings *s);
/* The layout of the operands of the weight gradient: GEMM_TN where the GEMM takes any layout,
 * else GEMM_TN_COPIES. */
gemm_layout fp8_wgrad_layout(const settings *s);
/* Bytes of a gradient that is quantised for both products of backward, and which copies that
 * buffer holds. */
int64_t fp8_gradient_bytes(const settings *s, int64_t rows, int64_t cols);
fp8_copies fp8_gradient_copies(const settings *s);

/* Scales of a quantised weight, whose blocks are 128 x 128 (blockwise) or 32 along the product. */
int64_t fp8_weight_scale_bytes(const settings *s, int64_t outer, int64_t inner);

/* Whether a linear can save its unquantised input: with delayed scaling it cannot
 * (module/linear.py). */
bool fp8_can_keep_original(const settings *s);
/* Whether norms write quantised rows directly; the other recipes go through bf16 (csrc
 * normalization.cpp). */
bool fp8_norm_is_fused(const settings *s);

#endif
