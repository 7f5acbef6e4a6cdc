/*
 * Megatron-FSDP's buckets of gradients (core/distributed/fsdp/src/megatron_fsdp): where ranks keep parts of
 * the gradients, those of a group are first collected whole in a bucket, in every micro-batch.
 *
 * The first gradient of a group allocates its bucket, and each gradient is copied into it. Once a layer's
 * backward has ended, or a backward as a whole, the communication stream divides the bucket, reduces and
 * scatters it, and adds this rank's part to the gradients. A bucket is freed when later ones make the
 * waiting ones too large, or at the end of the backward (GradReducePipeline).
 *
 * Not with delayed weight gradients, nor where a forward and a backward overlap: gradients are then summed
 * in the sharded buffer, as if it were whole.
 */
#ifndef OFFSIM_SIM_COMPILE_FSDP_BUCKETS_H
#define OFFSIM_SIM_COMPILE_FSDP_BUCKETS_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* When the static buffers are there. */
void fsdp_buckets_begin(walk *w, const static_allocation_list *list, const uint32_t *buffer);

static inline bool has_fsdp_buckets(const walk *w)
{
  return w->buckets != NULL;
}

/* Before a step, which may write gradients of parameters. With buckets. */
void fsdp_buckets_take(walk *w, const chunk_program *p, instance *in, const program_step *step);

/* These do nothing without buckets. */
void fsdp_buckets_layer_begin(walk *w, uint32_t chunk, layer_pass pass);
void fsdp_buckets_layer_end(walk *w, uint32_t chunk, int32_t layer, layer_pass pass);
void fsdp_buckets_backward_end(walk *w, uint32_t chunk);

#endif
