/*
 * The parameters of a rank as buffers, and their gradients.
 *
 * Megatron-LM keeps them in a few large buffers of its own: every parameter operand is the resident
 * buffer that stands for all weights, every gradient the one for all gradients (statics.c). Plain
 * PyTorch (model.implementation hf) has a tensor for each: its gradient appears in backward, where the
 * first one becomes `.grad` without a copy (torch/csrc/autograd/functions/accumulate_grad.h) and later
 * ones are added to it, and dies after the optimizer step (zero_grad sets to None), unless
 * training.keep_gradients.
 */
#ifndef OFFSIM_SIM_COMPILE_PARAMETERS_H
#define OFFSIM_SIM_COMPILE_PARAMETERS_H

#include "sim/compile/walk.h"
#include "sim/model/hf/parameters.h"

/* Those of plain PyTorch: one chunk's, in order. */
hf_parameter_list parameters_of_model(const walk *w);

/* Before everything: own parameters are built, or are there already. */
void parameters_begin(walk *w);
/* A resident of a steady iteration, as large as the parameter. */
uint32_t parameters_resident(walk *w, const program_parameter *p, buffer_class class, plan_stream pool);
/* When residents of the first backward come: gradients that outlive the step. */
void parameters_resident_gradients(walk *w);
/* Megatron's: after the buffers are there. */
void parameters_share(walk *w, uint32_t weights, uint32_t gradients);

/* A parameter that has no gradient yet takes this one; false: it is to be added. */
bool parameters_adopt(walk *w, const chunk_program *p, instance *in, const program_step *step);

/* Own parameters: the optimizer step of each, then its gradient dies. `state_bytes` are all of theirs. */
void parameters_step(walk *w, int64_t state_bytes);
void parameters_zero_gradients(walk *w);

#endif
