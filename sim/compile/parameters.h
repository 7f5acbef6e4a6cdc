/*
 * The parameters of a rank as buffers, and their gradients.
 *
 * Megatron-LM keeps each parameter in a separate tensor or, with the distributed optimizer, all of
 * them in a few large buffers, and all gradients in such buffers (sim/residents/rank_parameters.h):
 * a parameter's operands are views of these. Where offsim does not know which buffer it is
 * (Megatron-FSDP's weights, merged experts), the operand is the first buffer of the class. Plain PyTorch
 * (model.implementation hf) has a tensor for each parameter. Its gradient appears in backward: the
 * first one becomes `.grad` without a copy (torch/csrc/autograd/functions/accumulate_grad.h), later
 * ones are added to it. It is freed after the optimizer step (zero_grad sets it to None), unless
 * training.keep_gradients.
 */
#ifndef OFFSIM_SIM_COMPILE_PARAMETERS_H
#define OFFSIM_SIM_COMPILE_PARAMETERS_H

#include "sim/compile/walk.h"
#include "sim/residents/hf_parameters.h"

struct static_allocation_list; /* sim/residents/static_buffers.h */

/* The parameters of plain PyTorch, which has one chunk, in order. */
hf_parameter_list parameters_of_model(const walk *w);

/* Call it first: allocates plain PyTorch's parameters, or takes them as residents. */
void parameters_begin(walk *w);
/* A resident of a steady iteration, as large as the parameter. */
uint32_t parameters_resident(walk *w, const program_parameter *p, buffer_class class,
                             plan_stream pool);
/* When the first backward's residents are due: gradients that outlive the step. */
void parameters_resident_gradients(walk *w);
/* Megatron's, once the buffers exist: all parameters have these buffers until parameters_place. */
void parameters_share(walk *w, uint32_t weights, uint32_t gradients);

/* By parameter of the rank's list: the buffers that have its weight and its gradient. */
typedef struct parameter_buffers {
  uint32_t *weight_of, *gradient_of;
} parameter_buffers;

/* `buffer` is indexed by allocation of the list, here and below. */
parameter_buffers parameters_place(walk *w, const struct static_allocation_list *list,
                                   const uint32_t *buffer);
/* Megatron-FSDP's gradients: the buffer of a type, and for all parameters the buffer of theirs. */
uint32_t parameters_fsdp_gradients(const struct static_allocation_list *list,
                                   const uint32_t *buffer, uint8_t type);
void parameters_place_fsdp_gradients(walk *w, const struct static_allocation_list *list,
                                     const uint32_t *buffer);
/* The buffers of emit_shared_buffer, which exist from the first forward on. */
void parameters_place_shared(walk *w, const struct static_allocation_list *list,
                             const uint32_t *buffer);

/* A parameter without a gradient adopts this one. False: it has a gradient, to which the caller
 * adds. */
bool parameters_adopt(walk *w, const chunk_program *p, instance *in, const program_step *step);

/* Plain PyTorch's parameters: the optimizer step of each, after which its gradient is freed.
 * `state_bytes`: the states of all of them. */
void parameters_step(walk *w, const struct static_allocation_list *list, const uint32_t *buffer,
                     int64_t state_bytes);
void parameters_zero_gradients(walk *w);

#endif
