/*
 * What the schedule's Python frame still refers to when it is of no more use.
 *
 * Megatron's pipeline schedules keep locals until they are assigned again (Megatron-LM
 * core/pipeline_parallel/schedules.py):
 *
 *   without interleaving
 *     output_tensor      goes when the next forward step has returned, or another backward begins.
 *                        Its autograd graph ends in the accumulator of that micro-batch's input, so
 *                        a backward frees neither the input nor its gradient; nor does the forward
 *                        free the data loader's attention mask
 *
 *   with interleaving
 *     input_tensor_grad  goes when the next backward step has returned
 *     input_tensor       with overlapped sends, warm-up not included: what the last step of warm-up
 *                        received, the input of the first forward after it, stays to the end, and
 *                        its gradient with it
 */
#ifndef OFFSIM_SIM_COMPILE_FRAMES_H
#define OFFSIM_SIM_COMPILE_FRAMES_H

#include "sim/compile/walk.h"

/* Whether the frame, not the forward program, ends the reference to the attention mask. */
bool frames_hold_mask(const settings *s);

void frames_forward_done(walk *w, instance_id i);
void frames_backward_begins(walk *w, instance_id i);
void frames_backward_done(walk *w, instance_id i);
void frames_end(walk *w); /* the schedule returns */

/* Without interleaving what the frame held last outlives it: the model still refers to that
 * micro-batch's input. One of these buffers, of this size, stays as CLASS_RETAINED; false when
 * there is none. */
bool frames_leave(walk *w, int64_t bytes);
void frames_release(walk *w); /* those that nobody has asked for */

#endif
