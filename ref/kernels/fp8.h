/*
 * Matrices in fp8 (sim/plan/fp8_copy.h says how they lie). A number is multiplied by its tile's
 * scale in fp32 and rounded to the nearest of the format, ties to even, what is too large to the
 * largest; a code becomes a number when it is multiplied by the inverse of the scale, again in
 * fp32. Products take these numbers and nothing else.
 */
#ifndef OFFSIM_REF_KERNELS_FP8_H
#define OFFSIM_REF_KERNELS_FP8_H

#include "ref/kernels/kernel.h"
#include "sim/plan/fp8_copy.h"

/* A matrix of reals, whichever way it lies. */
typedef struct fp8_matrix {
  real *data;
  int64_t outer, inner;
  int64_t outer_stride, inner_stride; /* elements */
} fp8_matrix;

fp8_matrix fp8_transposed(fp8_matrix m);

/* An operand that holds copies: its view is [bytes], or [parts][bytes of one]. */
typedef struct fp8_buffer {
  uint8_t *data;
  int64_t parts, part_bytes;
} fp8_buffer;

fp8_buffer fp8_buffer_of(const exec_tensor *t);
fp8_scaling fp8_scaling_of(int code);

/* `code` is the scalar fp8 of a kernel, for the matrix's own format. A copy has fp8_copy_bytes; in
 * less room, for data alone, every scale is 1. */
void fp8_quantize(int code, const fp8_matrix *m, uint8_t *copy);
void fp8_dequantize(int code, const uint8_t *copy, int64_t bytes, const fp8_matrix *to);
/* A weight as the product along `inner` sees it: quantised and back. */
void fp8_round_weight(int code, const fp8_matrix *weight);

#endif
