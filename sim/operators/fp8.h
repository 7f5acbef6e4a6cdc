/* How all linears quantise the operands of fp8 products. */
#ifndef OFFSIM_SIM_OPERATORS_FP8_H
#define OFFSIM_SIM_OPERATORS_FP8_H

#include "sim/graph/emitter.h"
#include "sim/plan/fp8_copy.h"

/* A buffer that a quantisation writes, of fp8 or bytes (0: none), and which copies it holds. */
typedef struct fp8_target {
  ref buffer;
  fp8_copies copies;
} fp8_target;

/* What is quantised. */
typedef struct fp8_source {
  ref x;
  int64_t rows, columns;
  int64_t experts; /* whose rows are quantised one after the other; 0: all at once */
  bool has_amax;   /* what wrote x has found its largest magnitude */
} fp8_source;

/* Quantises to one target or two. `code`: fp8_code(). Scaling by the largest magnitude reads x once more to
 * find it (Transformer Engine pytorch/csrc/quantizer.cpp, Float8CurrentScalingQuantizer::quantize_impl). */
void emit_quantize(emitter *e, int code, fp8_source from, fp8_target first, fp8_target second);

/* A quantised gradient for both products of backward. `buffer` has fp8_gradient_bytes. */
typedef struct fp8_gradient {
  ref rowwise; /* for the gradient of the input */
  ref wgrad;   /* for that of the weight */
} fp8_gradient;

fp8_gradient emit_quantize_gradient(emitter *e, fp8_source gradient, ref buffer);

#endif
