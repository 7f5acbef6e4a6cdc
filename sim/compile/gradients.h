/*
 * Megatron-LM's ops on its gradient buffers before and after the passes of an iteration.
 *
 * Before the passes each buffer is zeroed (DistributedDataParallel.zero_grad_buffer). After them
 * each is divided by the number of data and context parallel ranks
 * (_ParamAndGradBucketGroup.start_grad_sync; experts' too) and summed over its data parallel group,
 * which is smaller for experts. Some parameters are whole on every tensor parallel rank, but each
 * rank has seen only a part of the sequence or of the heads: their gradients are summed over tensor
 * parallel ranks (finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads; its copies
 * into one tensor and back are not modelled). The gradient of an embedding that the first and the
 * last stage share is summed over the two (_allreduce_word_embedding_grads).
 *
 * `buffer` is indexed by allocation of the list. The list does not separate the buffers of
 * Megatron-FSDP, so one collective over the first buffer represents all of them. Gradients of its buckets
 * (fsdp_buckets.h) have been reduced before.
 */
#ifndef OFFSIM_SIM_COMPILE_GRADIENTS_H
#define OFFSIM_SIM_COMPILE_GRADIENTS_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

void gradients_zero(walk *w, const static_allocation_list *list, const uint32_t *buffer);
/* With check_for_nan_in_loss_and_grad the host reads the norm of each buffer before it is reduced
 * (param_and_grad_buffer.py: check_grads). */
void gradients_check(walk *w, const static_allocation_list *list, const uint32_t *buffer);
void gradients_finish(walk *w, const static_allocation_list *list, const uint32_t *buffer);

/* Before the optimizer's step, with clip_grad: the norm of this rank's shards, which the host reads,
 * and their multiplication (clip_grads.py). That the norm exceeds the limit is assumed. */
void gradients_clip(walk *w, const static_allocation_list *list, const uint32_t *buffer);

/* After the distributed optimizer's step: all-gathers the weights' shards. */
void gradients_gather_weights(walk *w, const static_allocation_list *list, const uint32_t *buffer);

#endif
