/* The factors of a product in fp8: copies in operands, and weights that are rounded on the way. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_FP8_FACTORS_H
#define OFFSIM_CUDA_KERNELS_FAST_FP8_FACTORS_H

#include "cuda/kernels/fast/fp8_weights.h"
#include "cuda/kernels/fast/product.h"

/* p->a and p->b of a gemm with the scalar fp8; false: Hopper's tensor cores do not know such
 * scales, or not such a layout. weight->data is set if the second factor is rounded first. */
bool fp8_factors_of(const exec_call *c, fast_product *p, fp8_weight *weight);

/* Codes, scales and maxima of a rounded weight, in bytes; and their place, 256-byte aligned. */
int64_t fp8_rounded_bytes(const fp8_weight *w);
void fp8_place_rounded(fp8_weight *w, void *at, fast_product *p);

#endif
