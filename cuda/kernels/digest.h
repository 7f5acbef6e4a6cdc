/*
 * 128 bits of what a view holds, and the sum of its elements' squares: the kernel behind
 * cuda_exec_digest, in no table of a plan's kernels. reads[0] is the view; writes[0], 24 bytes on
 * 8, takes the low and the high half and the sum, a double. The call needs DIGEST_SCRATCH_BYTES of
 * scratch memory, and nothing else than operands, stream and scratch is looked at.
 *
 * The elements' bits, one behind the other in the view's order, are cut into words of 8 bytes, the
 * last one filled up with zeros; each half is the sum over words, modulo 2^64, of a number mixed
 * from the word and its place. Squares of numbers are added in double, in an order that their count
 * decides alone; those of integers and of fp8 codes count as 0. So a GPU and the CPU find the same.
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
