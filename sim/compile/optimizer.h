/*
 * The optimizer step over Megatron's buffers: one kernel for up to 30 parameters that share their
 * rules, as many as fused kernels over lists of tensors take at once (Transformer Engine
 * common/multi_tensor/multi_tensor_apply.cuh, depth_to_max_tensors: five lists).
 *
 * Operands, for each parameter in turn. Read: its gradient, the main parameter (the weight where
 * that has no copy of its own), the states. Written: the weight, its main copy if there is one, the
 * states.
 */
#ifndef OFFSIM_SIM_COMPILE_OPTIMIZER_H
#define OFFSIM_SIM_COMPILE_OPTIMIZER_H

#include "sim/compile/walk.h"
#include "sim/residents/static_buffers.h"

/* Where everything is: buffers by allocation of the list; by parameter of the rank's list, those
 * that have its weight and its gradient. */
typedef struct optimizer_buffers {
  const static_allocation_list *list;
  const uint32_t *of_allocation, *of_weight, *of_gradient;
} optimizer_buffers;

/* `bytes`: what all kernels move together. False: no parameter has its states here; nothing has
 * been emitted. */
bool optimizer_step_buffers(walk *w, const optimizer_buffers *b, int64_t bytes);

enum { OPTIMIZER_STATES = 2 };

/* A parameter of plain PyTorch, or a shard of one: its gradient, itself, its states. */
typedef struct optimizer_operands {
  uint32_t gradient, weight;
  plan_view gradient_view; /* rank 0: all of the buffer */
  uint32_t states[OPTIMIZER_STATES];
  uint32_t state_count;
  int64_t elements;
} optimizer_operands;

void optimizer_step_tensor(walk *w, const optimizer_operands *o, int64_t bytes);

#endif
