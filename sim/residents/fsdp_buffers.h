/*
 * Megatron-FSDP keeps weights, fp32 main weights and gradients by parameter group (fsdp_groups.h).
 * data_parallel_sharding_strategy says which of them, and whether the optimizer's states, which each
 * parameter has, are sharded ("cut") over the data parallel ranks; the last rank's are written:
 *
 *   strategy              weights   gradients   main weights and states
 *   no_shard              whole     whole       whole
 *   optim                 whole     whole       cut
 *   optim_grads           whole     cut         cut
 *   optim_grads_params    cut       cut         cut
 *
 * fp32 weights have fp32 main weights too. Gradients have the weights' type (bf16 for fp8), and
 * the optimizer gets fp32 copies of its shard. If weights are sharded, a group is gathered for
 * use. Layers are resharded after their forward or backward; groups outside the layers stay
 * gathered. After a step the weights are gathered ahead: all of them, or with
 * overlap_param_gather the first 500 million elements; logging the norm of the parameters
 * (log_params_norm) reshards the layers. Earlier releases had fp32 gradients, or resharded the
 * groups outside the layers, too: fsdp_buffers.c has the days.
 *
 * Sources (Megatron-LM d98e8a64): core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py
 * (ParameterGroup, DataParallelBuffer, _init_each_parameter_group_buffers, update_main_grads,
 * AllGatherPipeline.reset, #4717), megatron_fsdp.py (start_param_sync), mcore_fsdp_adapter.py
 * (stop_communication).
 */
#ifndef OFFSIM_SIM_RESIDENTS_FSDP_BUFFERS_H
#define OFFSIM_SIM_RESIDENTS_FSDP_BUFFERS_H

#include "sim/residents/fsdp_groups.h"
#include "sim/residents/static_writer.h"

#define FSDP_GRADIENTS "fsdp.gradients" /* the name of the allocations */

/* Where gradients are: parameters in groups, groups in one buffer for each type. In the arena. */
rank_parameters fsdp_rank_parameters(const settings *s, uint32_t pp_rank, arena *a);

/* Gradients of a group are collected whole before they are cut (sim/compile/fsdp_buckets.h); or they are
 * summed in the cut buffer. */
bool fsdp_collects_gradients(const settings *s);
/* More than one rank shares it. */
bool fsdp_group_is_cut(const fsdp_group *g);
dtype fsdp_gradient_type(const settings *s, const fsdp_group *g);

/* When the model is built. Its own tensors move into the groups' buffers, and empty_cache gives their memory
 * back to the driver, so that nothing later can have it: they are not written. */
void write_fsdp_buffers(static_writer *w, const fsdp_group_list *groups);

/* First forward: the weights that are gathered and stay. */
void write_fsdp_gathered(static_writer *w, const fsdp_group_list *groups);

/* The weights that every step gathers for the next forward. */
void write_fsdp_gathered_ahead(static_writer *w, const fsdp_group_list *groups);

/* First step. */
void write_fsdp_states(static_writer *w, const fsdp_group_list *groups);

#endif
