/*
 * Attention on tensor cores without a library: the softmax is taken as scores come, a block of keys
 * after the other, and only its statistics are kept (Dao et al., FlashAttention-2, 2023).
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_OWN_H
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_OWN_H

#include "cuda/kernels/fast/attention_shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns of a head: 64, 128, or 192 and 128 of values. */
bool attention_own_suits(const attention_shape *a);

void attention_own_forward(cuda_call *c, const attention_shape *a);

int64_t attention_own_backward_scratch(const attention_shape *a);
void attention_own_backward(cuda_call *c, const attention_shape *a);

/* Writes from `first` on: the state of the generator of dropout, as ref writes it. */
void attention_write_states(cuda_call *c, uint32_t first);

#ifdef __cplusplus
}
#endif

#endif
