/*
 * PyTorch's fully sharded data parallel in the walk: this rank has shards instead of whole
 * parameters; a unit is gathered before its forward and backward and freed after them; then its
 * gradients are reduced.
 *
 * FSDP1 (torch/distributed/fsdp/_runtime_utils.py): a unit is one flat buffer. The communication
 * stream gathers it, after a cast if shards have another type; the next unit of backward is
 * prefetched. The host waits while two freed units are still in use on the GPU (limit_all_gathers).
 * After a unit's backward its gradients are joined into a flat one, then cast and reduced on the
 * communication stream.
 *
 * FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py): a unit is
 * gathered into one buffer and copied out of it into its parameters. In forward the buffer lives
 * until the next unit is gathered, in backward until the copy. Gradients are copied into one buffer
 * for the reduction, which lives until the next unit's reduction.
 *
 * DeepSpeed's ZeRO, stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py), in FSDP1's terms: a
 * unit's trainable flat buffer is gathered once in a step and stays. DeepSpeed gathers after the
 * step that has changed the shards. hf_statics.h has its buckets, into which gradients are copied.
 *
 * Every micro-batch reduces its gradients, which accumulate in the shards' type. With one rank
 * FSDP1 keeps parameters whole (NO_SHARD) and only casts. The root's parameters stay gathered from
 * the beginning of forward to the end of backward.
 */
#ifndef OFFSIM_SIM_COMPILE_FSDP_H
#define OFFSIM_SIM_COMPILE_FSDP_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* Call it first, if there is FSDP: it allocates the shards, or takes them as residents. */
void fsdp_begin(walk *w);

/* These do nothing without FSDP. */
void fsdp_forward_begin(walk *w);
void fsdp_backward_begin(walk *w);
void fsdp_backward_end(walk *w);
void fsdp_layer_begin(walk *w, int32_t layer, layer_pass pass);
void fsdp_layer_end(walk *w, int32_t layer, layer_pass pass);

/* The optimizer step of each shard, after which gradients are freed. `state_bytes`: the states of
 * all shards. */
void fsdp_step(walk *w, const static_allocation_list *list, const uint32_t *buffer,
               int64_t state_bytes);
void fsdp_zero_gradients(walk *w);

#endif
