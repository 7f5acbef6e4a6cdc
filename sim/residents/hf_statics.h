/*
 * The memory of a training process of plain PyTorch other than parameters and gradients (which
 * the model's graph has): library workspaces, optimizer states, and the tensors that a step
 * leaves in memory.
 *
 * cuBLAS: one workspace for the main thread's handle (forward) and one for autograd's (backward):
 * workspaces.h. Rotary embeddings keep their frequencies, fp32, half a head. After a step the
 * training loop still refers to the last micro-batch's token ids and its loss.
 *
 * DistributedDataParallel (more than one GPU without FSDP): buckets as large as all gradients
 * (torch/csrc/distributed/c10d/reducer.cpp; gradient_as_bucket_view is off by default).
 *
 * ZeRO: buckets of reduce_bucket_size elements in the model's type, one with contiguous_gradients and one
 * more with overlap_comm (DeepSpeed edaa7221, stage_1_and_2.py: setup_buckets).
 *
 * Optimizers, at the first step, for each trainable parameter or FSDP shard in order:
 *
 *   adamw_torch, adam   exp_avg, exp_avg_sq in the parameter's type; the step counter is on the
 *                       host. The update runs over all parameters at once (foreach), and first
 *                       takes the square roots of all second moments: as large as exp_avg_sq, for
 *                       the time of the step (torch/optim/adam.py, _multi_tensor_adam). Eight
 *                       operations go over the parameters, 20 reads and writes in total
 *   adamw_torch_fused   no such temporaries; the step counter is on the device
 *   adamw_8bit          one byte an element, and an fp32 maximum for each block of 256; parameters
 *                       below 4096 elements, and embeddings, have fp32 states (bitsandbytes
 *                       optim/optimizer.py, Optimizer2State.init_state; transformers trainer.py
 *                       registers embeddings with 32 bits). Two quantisation tables are shared
 *   paged_*             states of 100000 elements and more are managed memory, outside the caching
 *                       allocator (Optimizer8bit.get_state_buffer)
 *   paged_adamw_32bit   fp32 states
 *   lion_*              the same with one moment, and one table (Optimizer1State.init_state)
 *   adamw_torch_8bit, adamw_torch_4bit, ao_adamw_fp8
 *                       torchao 0.18, optim/adam.py (_new_buffer) and subclass_*.py: bytes, half bytes
 *                       or fp8, and for each moment an fp32 scale for each block of 256 and a table of
 *                       256, of 16, of no levels; parameters below 4096 elements or with a part of a
 *                       block have states in their own type. The step is compiled; that it needs no
 *                       temporaries is assumed, not measured. Its counters are on the host
 *   sgd                 without momentum: nothing
 */
#ifndef OFFSIM_SIM_RESIDENTS_HF_STATICS_H
#define OFFSIM_SIM_RESIDENTS_HF_STATICS_H

#include "sim/residents/hf_parameters.h"
#include "sim/residents/static_buffers.h"

/* Parameters and gradients are not in the list. `compute_capability`: see static_allocations. */
static_allocation_list hf_static_allocations(const settings *s, int compute_capability,
                                             const hf_parameter_list *parameters, arena *a);

/* The device memory traffic of one parameter's step: parameter, gradient and states. */
int64_t hf_step_traffic_bytes(const settings *s, int64_t parameter_bytes, int64_t state_bytes);

#endif
