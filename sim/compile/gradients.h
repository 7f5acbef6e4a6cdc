/*
 * What Megatron-LM does with its gradient buffers around the passes of an iteration.
 *
 * Before them each is set to zero (DistributedDataParallel.zero_grad_buffer). After them each is
 * divided by the number of data and context parallel ranks
 * (_ParamAndGradBucketGroup.start_grad_sync; experts' too) and summed over those that share it:
 * experts' over fewer. Then the gradients of parameters that every tensor parallel rank has whole,
 * but which have seen a part of the sequence or of the heads each, are summed over tensor parallel
 * ranks (finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads; its copies into one
 * tensor and back are left out), and that of an embedding that the first and the last stage both
 * have, over the two
 * (_allreduce_word_embedding_grads).
 *
 * `buffer` is by allocation of the list. With Megatron-FSDP, whose buffers the list does not tell
 * apart, one collective over the first of them stands for all.
 */
#ifndef OFFSIM_SIM_COMPILE_GRADIENTS_H
#define OFFSIM_SIM_COMPILE_GRADIENTS_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

void gradients_zero(walk *w, const static_allocation_list *list, const uint32_t *buffer);
void gradients_finish(walk *w, const static_allocation_list *list, const uint32_t *buffer);

/* After the distributed optimizer's step: its shards come together. */
void gradients_gather_weights(walk *w, const static_allocation_list *list, const uint32_t *buffer);

#endif
