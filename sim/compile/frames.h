/*
 * Buffers that locals of the schedule's Python frame keep alive after their last use.
 *
 * Megatron's pipeline schedules keep locals until they are assigned again (Megatron-LM
 * core/pipeline_parallel/schedules.py):
 *
 *   without interleaving
 *     output_tensor      until the next forward step has returned, or another backward begins. Its
 *                        autograd graph ends in the accumulator of that micro-batch's input, so a
 *                        backward frees neither the input nor its gradient
 *
 *   with interleaving
 *     input_tensor_grad  until the next backward step has returned
 *     input_tensor       with overlapped sends, except in warm-up: the input that the last warm-up
 *                        step received, for the first forward after it, stays to the end, and so
 *                        does its gradient
 *
 * Where the data iterator keeps the micro-batches of the step (keeps_batches), each stays from its
 * forward to the next step.
 */
#ifndef OFFSIM_SIM_COMPILE_FRAMES_H
#define OFFSIM_SIM_COMPILE_FRAMES_H

#include "sim/compile/walk.h"

void frames_forward_done(walk *w, instance_id i);
/* Call it when all operators of the forward have run: in a pair that is later. */
void frames_keep_batch(walk *w, instance_id i);
void frames_backward_begins(walk *w, instance_id i);
void frames_backward_done(walk *w, instance_id i);
void frames_end(walk *w); /* call it when the schedule returns */

/* Without interleaving the frame's last buffers outlive it: the model still refers to that
 * micro-batch's input. One of these buffers, of this size, stays as CLASS_RETAINED. False: none has
 * that size. */
bool frames_leave(walk *w, int64_t bytes);
/* The micro-batches of the step stay as CLASS_RETAINED; drops all else that frames_leave has not
 * kept. */
void frames_release(walk *w);

#endif
