/*
 * PyTorch's fully sharded data parallel in the walk: this rank's shards in place of whole
 * parameters; gathering a unit before its forward and backward, and giving it back; reducing its
 * gradients.
 *
 * FSDP1 (torch/distributed/fsdp/_runtime_utils.py): a unit is one flat buffer. It is gathered
 * beside compute, cast first if shards have another type; the next unit to run backward is gathered
 * ahead. The host waits when two units given back are not free yet (limit_all_gathers). After a
 * unit's backward its gradients are joined into a flat one, cast and reduced beside compute.
 *
 * FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py): a unit is
 * gathered into one buffer and copied out of it into its parameters. In forward the buffer lives
 * until the next unit is there, in backward until the copy. Gradients are copied into one buffer to
 * be reduced, which lives until the next unit's.
 *
 * Gradients are reduced in every micro-batch, and add up in the shards' type. With one rank FSDP1
 * keeps parameters whole (NO_SHARD): what is left of all this is the cast. The root's parameters
 * stay from the beginning of forward to the end of backward.
 */
#ifndef OFFSIM_SIM_COMPILE_FSDP_H
#define OFFSIM_SIM_COMPILE_FSDP_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* Before everything, if there is FSDP: shards are built, or are there already. */
void fsdp_begin(walk *w);

/* Nothing happens in these without it. */
void fsdp_forward_begin(walk *w);
void fsdp_backward_begin(walk *w);
void fsdp_backward_end(walk *w);
void fsdp_layer_begin(walk *w, int32_t layer, layer_pass pass);
void fsdp_layer_end(walk *w, int32_t layer, layer_pass pass);

/* The optimizer step of each shard; then the gradients die. `state_bytes` are those of all
 * shards. */
void fsdp_step(walk *w, const static_allocation_list *list, const uint32_t *buffer,
               int64_t state_bytes);
void fsdp_zero_gradients(walk *w);

#endif
