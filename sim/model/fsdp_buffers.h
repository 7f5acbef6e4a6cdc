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
 * Source (Megatron-LM d98e8a64): core/distributed/fsdp/src/megatron_fsdp/param_and_grad_buffer.py
 * (ParameterGroup, DataParallelBuffer, _init_each_parameter_group_buffers).
 */
#ifndef OFFSIM_SIM_MODEL_FSDP_BUFFERS_H
#define OFFSIM_SIM_MODEL_FSDP_BUFFERS_H

#include "sim/model/static_writer.h"

/* Building: the model's own tensors (`parameter_ids`, by parameter) move into the groups' buffers.
 */
void write_fsdp_buffers(static_writer *w, const uint32_t *parameter_ids);

/* First step. */
void write_fsdp_states(static_writer *w);

#endif
