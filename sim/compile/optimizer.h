/*
 * The optimizer step over Megatron's buffers: one kernel for up to 30 parameters with the same
 * rules, the limit of fused kernels over lists of tensors (Transformer Engine
 * common/multi_tensor/multi_tensor_apply.cuh, depth_to_max_tensors: five lists).
 *
 * Operands, for each parameter in turn. Read: its gradient, the main parameter (the weight if it
 * has no main copy), the states. Written: the weight, its main copy if it has one, the states.
 */
#ifndef OFFSIM_SIM_COMPILE_OPTIMIZER_H
#define OFFSIM_SIM_COMPILE_OPTIMIZER_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* Where the operands are: buffers by allocation of the list, and, by parameter of the rank's list,
 * the buffers of its weight and gradient. */
typedef struct optimizer_buffers {
  const static_allocation_list *list;
  const uint32_t *of_allocation, *of_weight, *of_gradient;
  const plan_view *view_of_allocation; /* the part of the buffer; NULL: all of each */
  const bool *only;                    /* by parameter: those that are stepped; NULL: all */
} optimizer_buffers;

/* `bytes`: the total that all kernels move. False: no parameter has its states here, and nothing
 * was emitted. */
bool optimizer_step_buffers(walk *w, const optimizer_buffers *b, int64_t bytes);

/*
 * Casts the main parameters of weights in fp8, after their step. Transformer Engine converts all shards to
 * the model's type, then casts each as a matrix of one row by a quantizer that also makes the transposed
 * copy, which nothing reads: delayed and tensorwise scaling, on GPUs whose fp8 products need such copies.
 * The precision-aware optimizer writes weights itself, unless its main parameters are fp32 and the scaling
 * is not delayed.
 *
 * Transformer Engine 2.13: pytorch/tensor/utils.py (_cast_master_weights_to_fp8_delayed_scaling,
 * _current_scaling), pytorch/csrc/quantizer.cpp (convert_and_update_tensor), common/transpose/
 * cast_transpose.cu. Megatron-LM d98e8a64: core/optimizer/optimizer_config.py
 * (use_precision_aware_optimizer_no_fp8_or_ds_fp8).
 */
void optimizer_cast_weights(walk *w, const optimizer_buffers *b);

/* Parameters of which this rank steps a part; with Megatron-FSDP, which cuts each of them, all. */
uint32_t optimizer_tensors(const static_allocation_list *list, arena *a);

enum { OPTIMIZER_STATES = 2 };

/* The operands of a plain PyTorch parameter, or a shard of one: gradient, weight, states. */
typedef struct optimizer_operands {
  uint32_t gradient, weight;
  plan_view gradient_view, weight_view; /* rank 0: all of the buffer */
  uint32_t states[OPTIMIZER_STATES];
  uint32_t state_count;
  int64_t elements;
} optimizer_operands;

void optimizer_step_tensor(walk *w, const optimizer_operands *o, int64_t bytes);

/* One kernel for up to OPTIMIZER_TENSORS such parameters, on the device or in the host's memory. */
enum { OPTIMIZER_TENSORS = 30 };
typedef struct optimizer_step {
  const optimizer_operands *items;
  uint32_t count;
  bool decays, on_host;
  int64_t bytes; /* that it moves */
} optimizer_step;
void optimizer_step_tensors(walk *w, const optimizer_step *step);
/* The part of its parameter's place in a buffer that a shard is, in elements of `type`. */
plan_view optimizer_shard_view(const rank_parameters *r, uint32_t row, int64_t elements,
                               dtype type);

#endif
