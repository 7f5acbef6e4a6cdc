/*
 * Attention by cuDNN. A plan is built for the first call of its kind and remembered by the rank's
 * libraries.
 */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_CUDNN_H
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_CUDNN_H

#include "cuda/kernels/fast/attention_shape.h"

/* Scratch memory that is offered to cuDNN. */
int64_t attention_cudnn_scratch(const attention_shape *a, bool backward);

/* False: there is no cuDNN, or it cannot do this call within the scratch memory; nothing was
 * launched. */
bool attention_cudnn(cuda_call *c, const attention_shape *a, bool backward);

#endif
