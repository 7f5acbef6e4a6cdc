/* Weights at the beginning (parameters.h), in the buffers that have them. */
#ifndef OFFSIM_SIM_TRAIN_WEIGHTS_H
#define OFFSIM_SIM_TRAIN_WEIGHTS_H

#include "sim/exec/call.h"
#include "sim/train/parameters.h"

/* What of the list stands in the buffer: weights, and the optimizer's copies of them, which are
 * casts of weights that have been rounded. All else of it is left alone. */
void weights_fill(const plan *p, uint32_t stage, const train_parameter_list *list, uint32_t buffer,
                  void *data);

/* The same as formulas, in the arena. */
uint32_t weights_drawn(const plan *p, uint32_t stage, const train_parameter_list *list,
                       uint32_t buffer, const exec_drawn **parts, arena *a);

/* One weight, as rounded, into a whole tensor of the model. */
void weights_put(const plan *p, uint32_t stage, const train_parameter *of, float *tensor);

/*
 * Frozen weights that lie in 4 bits (sim/model/hf/lora.c): the numbers that the weight would have
 * in the type of the model, through the quantiser of sim/exec/code_books.h.
 */

/* Fills the buffer of a stage if it is one of those that keep such a weight: its codes, their
 * scales, and so on. False: it is none. */
bool quantized_fill(const settings *s, const plan *p, uint32_t stage, uint32_t buffer,
                    uint64_t seed, void *data);

/* Whether the buffer is a part of a quantised weight. */
bool quantized_is(const plan *p, uint32_t stage, uint32_t buffer);

#endif
