/*
 * The optimizer's memory for the parameters of a rank.
 *
 * When it is built, an fp32 main copy of every 16-bit parameter (or of this rank's shard of it),
 * cast through a clone in the parameter's type. At the first step, fp32 gradient copies where
 * gradients are accumulated in 16 bits (they stay until the next zero_grad), then each parameter's
 * states: Adam two, SGD with momentum, Lion and Muon one.
 *
 * Muon and similar optimizers orthogonalise whole matrices, so states are not sharded. With a
 * layer-wise layout a rank owns the matrices in its part of the buffers, and its share of all
 * else; without one, whole parameters are dealt to the data parallel ranks by size, back and
 * forth. Word embeddings, the output layer and vectors use Adam. Megatron-FSDP shards everything
 * that is kept by parameter group.
 *
 * With optimizer_cpu_offload a HybridDeviceOptimizer keeps fp32 main parameters and states of its own;
 * the types of a precision-aware optimizer have no effect. Of the shards that the host steps, main
 * parameter and gradient are in page-locked memory, the states in other host memory. (The 16-bit copy
 * that comes to the host first leaves blocks in PyTorch's cache of page-locked memory, which are not
 * counted.)
 *
 * Sources (Megatron-LM d98e8a64): core/optimizer/optimizer.py (Float16OptimizerWithFloat16Params,
 * grad.float()), distrib_optimizer.py (_build_model_and_main_param_groups), layer_wise_optimizer.py
 * (_shard_params_ping_pong), __init__.py, cpu_offloading/hybrid_optimizer.py; TransformerEngine
 * optimizers/fused_adam.py (initialize_state). */
#ifndef OFFSIM_SIM_RESIDENTS_OPTIMIZER_STATES_H
#define OFFSIM_SIM_RESIDENTS_OPTIMIZER_STATES_H

#include "sim/residents/static_writer.h"

/* The shards in the order of the optimizer's groups: dense before experts; matrices before vectors,
 * which have no weight decay. */
optimizer_shard_list optimizer_by_group(const parameter_list *parameters,
                                        const optimizer_shard_list *shards, arena *a);

/* The optimizer's shards, in that order. */
optimizer_shard_list optimizer_order(const settings *s, const parameter_list *parameters,
                                     const gradient_buffer_list *buffers, arena *a);

void write_main_parameters(static_writer *w, const optimizer_shard_list *shards);
/* ... at the first step; the states are there already if the run resumes. */
void write_optimizer_states(static_writer *w, const optimizer_shard_list *shards);

/* Of an element: what a checkpoint has of main parameter and states, in fp32. */
int64_t checkpointed_bytes(const settings *s, const parameter *p);

/* The states alone, on the device in that class. */
void take_optimizer_states(static_writer *w, const optimizer_shard_list *shards,
                           buffer_class class);

#endif
