/*
 * How Transformer Engine lays out fp8 operands (d0067d0d, pytorch/tensor/float8_tensor.py,
 * float8_blockwise_tensor.py, mxfp8_tensor.py).
 *
 * A matrix is quantised for the products along its rows (rowwise: forward and input gradient) and,
 * when the weight gradient needs it, along its columns (columnwise). Both copies are made at once;
 * what only forward reads dies with it.
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
#ifndef OFFSIM_SIM_MODEL_FP8_H
#define OFFSIM_SIM_MODEL_FP8_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/config/settings.h"

/* One scale for a tensor: delayed and tensorwise. */
bool fp8_is_per_tensor(const settings *s);

/* Bytes with scales; `rows` is the outer dimension of the bf16 tensor. */
int64_t fp8_rowwise_bytes(const settings *s, int64_t rows, int64_t cols);
int64_t fp8_columnwise_bytes(const settings *s, int64_t rows, int64_t cols);

/* What a linear keeps of its input for the weight gradient: the columnwise copy. `gathered`: the
 * input is gathered over TP again in backward, which per-tensor recipes do with the rowwise copy.
 */
int64_t fp8_saved_bytes(const settings *s, int64_t rows, int64_t cols, bool gathered);
/* What only forward reads: the other copy, 0 when one serves both. */
int64_t fp8_forward_bytes(const settings *s, int64_t rows, int64_t cols, bool gathered);
/* What backward makes of the saved input before the weight gradient: of an original input, the
 * columnwise copy; of gathered rowwise data of `gemm_rows` rows, its transpose where the GEMM needs
 * one. */
int64_t fp8_wgrad_bytes(const settings *s, int64_t rows, int64_t gemm_rows, int64_t cols,
                        bool gathered, bool original);
/* A gradient quantised for both products of backward. */
int64_t fp8_gradient_bytes(const settings *s, int64_t rows, int64_t cols);

/* Scales of a quantised weight, whose blocks are 128 x 128 (blockwise) or 32 along the product. */
int64_t fp8_weight_scale_bytes(const settings *s, int64_t outer, int64_t inner);

/* Whether a linear asked to keep its original input does so: delayed scaling cannot
 * (module/linear.py). */
bool fp8_can_keep_original(const settings *s);
/* Whether norms write quantised rows at once: the others go by way of bf16 (csrc
 * normalization.cpp). */
bool fp8_norm_is_fused(const settings *s);

#endif
