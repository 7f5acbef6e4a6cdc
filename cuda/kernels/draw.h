/*
 * Initial weights, drawn in place: the kernel of exec_hooks.draw, in no table of a plan's kernels.
 * `buffer` is the beginning of the buffer on the device. The bits are those of sim/train/weights.c.
 */
#ifndef OFFSIM_CUDA_KERNELS_DRAW_H
#define OFFSIM_CUDA_KERNELS_DRAW_H

#include "cuda/kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

void cuda_exact_draw(cuda_call *c, void *buffer, const exec_drawn *part);
void host_exact_draw(cuda_call *c, void *buffer, const exec_drawn *part);

#ifdef __cplusplus
}
#endif

#endif
