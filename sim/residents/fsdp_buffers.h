/*
 * Megatron-FSDP keeps weights, fp32 main weights, gradients and optimizer states by parameter
 * group (the dense parameters or the routed experts of one layer, or everything outside the
 * layers). data_parallel_sharding_strategy says which of them are sharded ("cut") over the data
 * parallel ranks:
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

#include "sim/residents/static_writer.h"

#define FSDP_GRADIENTS "fsdp.gradients" /* the name of the allocations */

/* Where gradients are: parameters in groups, groups in one buffer for each type. In the arena. */
rank_parameters fsdp_rank_parameters(const settings *s, uint32_t pp_rank, arena *a);

/* When the model is built, its own tensors (`parameter_ids`, by parameter) move into the groups'
 * buffers. */
void write_fsdp_buffers(static_writer *w, const uint32_t *parameter_ids);

/* First forward: the weights that are gathered and stay. */
void write_fsdp_gathered(static_writer *w);

/* The weights that every step gathers for the next forward. */
void write_fsdp_gathered_ahead(static_writer *w);

/* First step. */
void write_fsdp_states(static_writer *w);

#endif
