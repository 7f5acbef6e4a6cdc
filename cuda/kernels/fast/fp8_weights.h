/*
 * Weights that a product in fp8 rounds itself (sim/plan/fp8_copy.h): e4m3 codes [outer][inner],
 * where the product goes along `inner`, and the scales of tiles.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FP8_WEIGHTS_H
#define OFFSIM_CUDA_KERNELS_FAST_FP8_WEIGHTS_H

#include "cuda/kernels/kernel.h"
#include "sim/plan/fp8_copy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fp8_weight {
  const void *data; /* bf16 or fp32, without gaps */
  bool fp32;
  bool turned; /* stored as [inner][outer] */
  int64_t outer, inner;
  fp8_scaling scaling; /* FP8_UNIT, FP8_TENSOR or FP8_BLOCKS: of 128 x 128 */
  uint8_t *codes;      /* [outer][inner] */
  float *scales;       /* one; FP8_BLOCKS: [outer / 128][inner / 128, in fours] */
  float *maxima;       /* scratch: fp8_weight_tiles */
} fp8_weight;

enum { FP8_WEIGHT_TILE = 128 };

int64_t fp8_weight_tiles(int64_t outer, int64_t inner);
void fp8_round_weight_to(cuda_call *c, const fp8_weight *w);

#ifdef __cplusplus
}
#endif

#endif
