/* Attention as cuDNN's operations. */
#ifndef OFFSIM_CUDA_KERNELS_FAST_ATTENTION_CUDNN_GRAPHS_H
#define OFFSIM_CUDA_KERNELS_FAST_ATTENTION_CUDNN_GRAPHS_H

#include "cuda/kernels/fast/attention_graph.h"
#include "cuda/kernels/fast/attention_shape.h"

#ifdef OFFSIM_WITH_CUDNN

/* Unique ids of what is given to a plan: operands from the first by their number; the log sums; a
 * number for each row, which backward makes for itself; the scale, minus infinity under a causal
 * mask, and one for backward. */
enum { ID_OPERANDS = 1, ID_LOG_SUMS = 32, ID_DELTAS, ID_SCALE, ID_MINUS_INFINITY, ID_ONE };

/* Softmax of scaled masked scores, times values. */
void attention_forward_graph(cudnn_graph *g, const attention_shape *a);

/*
 * Probabilities again from the sums that forward kept; their gradients; those of scores. That the
 * query's gradient is the product itself, and not a sum in memory, is what makes cuDNN take an
 * engine with one order of sums.
 */
void attention_backward_graph(cudnn_graph *g, const attention_shape *a);

#endif

#endif
