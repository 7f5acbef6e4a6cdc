/*
 * Weight gradients that wait for the end of the schedule (--defer-embedding-wgrad-compute).
 *
 * The output layer's backward of the first micro-batches stashes the gradient of the logits and the
 * layer's input; once the pipeline has drained, the products are issued in order, with sequence
 * parallelism each after the all-gather of its input, and the stash is freed (Megatron-LM
 * core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.backward;
 * core/utils.py, drain_embedding_wgrad_compute). The stashed input is not detached: its autograd
 * graph keeps the micro-batch's input from the previous stage, and that input's gradient, as long.
 */
#ifndef OFFSIM_SIM_COMPILE_DEFERRED_H
#define OFFSIM_SIM_COMPILE_DEFERRED_H

#include "sim/compile/walk.h"

/* Stashes the step and its operands. False: the limit is reached, and the step runs now. */
bool deferred_take(walk *w, const chunk_program *p, const instance *in, const program_step *step);
void deferred_backward_done(walk *w, instance_id i);
void deferred_drain(walk *w);

#endif
