/*
 * Megatron-FSDP: weights, fp32 main weights, gradients and optimizer states are kept by parameter
 * group (the dense parameters or the routed experts of one layer, or everything outside the
 * layers), each whole or cut over the data parallel ranks, as data_parallel_sharding_strategy says:
 *
 *   strategy              weights   gradients   main weights and states
 *   no_shard              whole     whole       whole
 *   optim                 whole     whole       cut
 *   optim_grads           whole     cut         cut
 *   optim_grads_params    cut       cut         cut
 *
 * Main weights are fp32 beside fp32 weights too; gradients have the weights' type (bf16 for fp8),
 * and the optimizer gets fp32 copies of its part. Where weights are cut, a group is gathered whole
 * for use. Layers are given back after their forward or backward; what is outside the layers stays.
 * After a step the weights are gathered ahead: all, or with overlap_param_gather the first 500
 * million elements; logging the norm of the parameters (log_params_norm) gives the layers back.
 * Software before May 2026 had fp32 gradients and gave back what is outside the layers too, except
 * custom FSDP (before 2026), which kept it: that much is measured, not read.
 *
 * Sources (Megatron-LM d98e8a64): core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py
 * (ParameterGroup, DataParallelBuffer, _init_each_parameter_group_buffers, update_main_grads,
 * AllGatherPipeline.reset, #4717), megatron_fsdp.py (start_param_sync), mcore_fsdp_adapter.py
 * (stop_communication).
 */
#ifndef OFFSIM_SIM_RESIDENTS_FSDP_BUFFERS_H
#define OFFSIM_SIM_RESIDENTS_FSDP_BUFFERS_H

#include "sim/residents/static_writer.h"

/* Building: the model's own tensors (`parameter_ids`, by parameter) move into the groups' buffers.
 */
void write_fsdp_buffers(static_writer *w, const uint32_t *parameter_ids);

/* First forward: what is gathered and stays. */
void write_fsdp_gathered(static_writer *w);

/* What every step gathers for the next forward. */
void write_fsdp_gathered_ahead(static_writer *w);

/* First step. */
void write_fsdp_states(static_writer *w);

#endif
