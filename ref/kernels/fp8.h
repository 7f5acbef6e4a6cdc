/*
 * Matrices in fp8 (sim/plan/fp8_copy.h has their layout). A number is multiplied by its tile's
 * scale in fp32 and rounded to the nearest number of the format, ties to even; numbers that are too
 * large become the largest. A code times the inverse of the scale, again in fp32, is the number
 * that products use.
 */
#ifndef OFFSIM_REF_KERNELS_FP8_H
#define OFFSIM_REF_KERNELS_FP8_H

#include "ref/kernels/kernel.h"
#include "sim/plan/fp8_copy.h"

/* A matrix of reals, in any layout. */
typedef struct fp8_matrix {
  real *data;
  int64_t outer, inner;
  int64_t outer_stride, inner_stride; /* elements */
} fp8_matrix;

fp8_matrix fp8_transposed(fp8_matrix m);

/* An operand with copies: its view is [bytes], or [parts][bytes of one]. */
typedef struct fp8_buffer {
  uint8_t *data;
  int64_t parts, part_bytes;
} fp8_buffer;

fp8_buffer fp8_buffer_of(const exec_tensor *t);
fp8_scaling fp8_scaling_of(int code);

/* `code` is a kernel's scalar fp8, for this matrix's format. A copy has fp8_copy_bytes; if only the
 * data fit, every scale is 1. */
void fp8_quantize(int code, const fp8_matrix *m, uint8_t *copy);
void fp8_dequantize(int code, const uint8_t *copy, int64_t bytes, const fp8_matrix *to);
/* Quantises a weight and back, as the product along `inner` reads it. */
void fp8_round_weight(int code, const fp8_matrix *weight);

#endif
