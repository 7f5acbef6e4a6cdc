/* Initial weights (parameters.h), in their buffers. */
#ifndef OFFSIM_SIM_TRAIN_WEIGHTS_H
#define OFFSIM_SIM_TRAIN_WEIGHTS_H

#include "sim/exec/call.h"
#include "sim/train/parameters.h"

/* Fills the parameters of the list that are in the buffer: weights, and the optimizer's copies of
 * them, which are casts of the rounded weights. The rest of the buffer is unchanged. */
void weights_fill(const plan *p, uint32_t stage, const train_parameter_list *list, uint32_t buffer,
                  void *data);

/* The same as formulas, in the arena. */
uint32_t weights_drawn(const plan *p, uint32_t stage, const train_parameter_list *list,
                       uint32_t buffer, const exec_drawn **parts, arena *a);

/* Writes one weight, rounded, into a whole tensor of the model. */
void weights_put(const plan *p, uint32_t stage, const train_parameter *of, float *tensor);

/*
 * Frozen weights in 4 bits (sim/model/hf/lora.c): the initial weight in the type of the model,
 * quantised by sim/exec/code_books.h.
 */

/* Fills the buffer of a stage if it belongs to such a weight: its codes, their scales, and so on.
 * False: it does not. */
bool quantized_fill(const settings *s, const plan *p, uint32_t stage, uint32_t buffer,
                    uint64_t seed, void *data);

/* Whether the buffer is a part of a quantised weight. */
bool quantized_is(const plan *p, uint32_t stage, uint32_t buffer);

#endif
