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

/* Quantises x (`rows` x `columns`) to one target or two. `code`: fp8_code(). */
void emit_quantize(emitter *e, int code, int64_t rows, int64_t columns, ref x, fp8_target first,
                   fp8_target second);

/* A quantised gradient for both products of backward. `buffer` has fp8_gradient_bytes. */
typedef struct fp8_gradient {
  ref rowwise; /* for the gradient of the input */
  ref wgrad;   /* for that of the weight */
} fp8_gradient;

fp8_gradient emit_quantize_gradient(emitter *e, int64_t rows, int64_t columns, ref gy, ref buffer);

#endif
