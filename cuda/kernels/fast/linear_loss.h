/* Rows of logits in fp32, computed some at a time, and what cross entropy makes of them. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_LINEAR_LOSS_H
#define OFFSIM_CUDA_KERNELS_FAST_LINEAR_LOSS_H

#include "cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct logit_rows {
  float *logits;               /* [count, vocab] */
  int64_t first, count, vocab; /* tokens first .. first + count - 1 */
} logit_rows;

/* The operands of linear_cross_entropy_forward and _backward
 * (ref/kernels/linear_cross_entropy.c). */
bool fast_losses_suit(const exec_call *c);
void fast_losses_of(cuda_call *c, const logit_rows *rows);
void fast_logit_gradients_of(cuda_call *c, const logit_rows *rows);

#ifdef __cplusplus
}
#endif

#endif
