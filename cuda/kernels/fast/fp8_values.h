/*
 * Factors in fp8 as the numbers that they encode, in bf16: for products that Hopper's tensor
 * cores do not support in fp8. Codes times powers of two are exact; other scales round once more.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FP8_VALUES_H
#define OFFSIM_CUDA_KERNELS_FAST_FP8_VALUES_H

#include "cuda/kernels/fast/fp8_weights.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One copy (sim/plan/fp8_copy.h). */
typedef struct fp8_source {
  const uint8_t *data;
  int64_t outer, inner;
  fp8_scaling scaling; /* FP8_UNIT: no scales */
  bool e5m2, turned;   /* turned: `to` is [inner][outer] */
  void *to;            /* bf16 [outer][inner] */
} fp8_source;

void fp8_values_of(cuda_call *c, const fp8_source *s);

/* A weight of any scaling, rounded to e4m3 and back: bf16 numbers in the weight's layout. Of *w,
 * codes and scales are not used. */
void fp8_round_values(cuda_call *c, const fp8_weight *w, void *to);

#ifdef __cplusplus
}
#endif

#endif
