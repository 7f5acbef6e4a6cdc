/*
 * 128 bits of a view's elements, and the sum of their squares: the kernel of cuda_exec_digest, in
 * no table of a plan's kernels. reads[0] is the view; writes[0], 24 bytes aligned to 8, receives
 * the low and the high half and the sum, a double. The call needs DIGEST_SCRATCH_BYTES of scratch
 * memory; only its operands, stream and scratch are used.
 *
 * The elements' bits, in the view's order, are cut into words of 8 bytes, the last one padded with
 * zeros; each half is the sum over words, modulo 2^64, of a number mixed from the word and its
 * index. Squares of numbers are added in double, in an order that depends only on their count;
 * those of integers and of fp8 codes count as 0. So a GPU and the CPU compute the same.
 */
#ifndef OFFSIM_CUDA_KERNELS_DIGEST_H
#define OFFSIM_CUDA_KERNELS_DIGEST_H

#include "cuda/kernels/kernel.h"

enum { DIGEST_SCRATCH_BYTES = 4 << 20 };

#ifdef __cplusplus
extern "C" {
#endif

cuda_kernel cuda_exact_digest, host_exact_digest;

#ifdef __cplusplus
}
#endif

#endif
