/*
 * Frozen weights that lie in 4 bits (sim/model/hf/lora.c): the numbers that the weight would have
 * in the type of the model (parameters.h), through the quantiser of sim/exec/code_books.h.
 */
#ifndef OFFSIM_SIM_TRAIN_QUANTIZED_H
#define OFFSIM_SIM_TRAIN_QUANTIZED_H

#include <stdbool.h>

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

/* Fills the buffer of a stage if it is one of those that keep such a weight: its codes, their
 * scales, and so on. False: it is none. */
bool quantized_fill(const settings *s, const plan *p, uint32_t stage, uint32_t buffer,
                    uint64_t seed, void *data);

/* Whether the buffer is a part of a quantised weight. */
bool quantized_is(const plan *p, uint32_t stage, uint32_t buffer);

#endif
