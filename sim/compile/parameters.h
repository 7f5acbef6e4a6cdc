/*
 * The parameters of a rank as buffers, and their gradients.
 *
 * Megatron-LM has them in tensors of their own or, with the distributed optimizer, in a few large
 * buffers, and all gradients in such (sim/residents/rank_parameters.h): a parameter's operands are views of
 * those. What its graphs do not tell (Megatron-FSDP, merged experts) has the first buffer of its class
 * instead. Plain PyTorch (model.implementation hf) has a tensor for each: its gradient appears in backward,
 * where the first one becomes `.grad` without a copy (torch/csrc/autograd/functions/accumulate_grad.h) and
 * later ones are added to it, and dies after the optimizer step (zero_grad sets to None), unless
 * training.keep_gradients.
 */
#ifndef OFFSIM_SIM_COMPILE_PARAMETERS_H
#define OFFSIM_SIM_COMPILE_PARAMETERS_H

#include "sim/compile/walk.h"
#include "sim/residents/hf_parameters.h"

struct static_allocation_list; /* sim/residents/static_buffers.h */

/* Those of plain PyTorch: one chunk's, in order. */
hf_parameter_list parameters_of_model(const walk *w);

/* Before everything: own parameters are built, or are there already. */
void parameters_begin(walk *w);
/* A resident of a steady iteration, as large as the parameter. */
uint32_t parameters_resident(walk *w, const program_parameter *p, buffer_class class,
                             plan_stream pool);
/* When residents of the first backward come: gradients that outlive the step. */
void parameters_resident_gradients(walk *w);
/* Megatron's, when the buffers are there: all have these, until they are placed. */
void parameters_share(walk *w, uint32_t weights, uint32_t gradients);

/* By parameter of the rank's list: the buffers that have its weight and its gradient. */
typedef struct parameter_buffers {
  uint32_t *weight_of, *gradient_of;
} parameter_buffers;

/* `buffer` is by allocation of the list, here and below. */
parameter_buffers parameters_place(walk *w, const struct static_allocation_list *list,
                                   const uint32_t *buffer);
/* The buffers of emit_shared_buffer, which are there from the first forward on. */
void parameters_place_shared(walk *w, const struct static_allocation_list *list,
                             const uint32_t *buffer);

/* A parameter that has no gradient yet takes this one; false: it is to be added. */
bool parameters_adopt(walk *w, const chunk_program *p, instance *in, const program_step *step);

/* Own parameters: the optimizer step of each, then its gradient dies. `buffer` is by allocation of the list,
 * `state_bytes` are all of theirs. */
void parameters_step(walk *w, const struct static_allocation_list *list, const uint32_t *buffer,
                     int64_t state_bytes);
void parameters_zero_gradients(walk *w);

#endif
