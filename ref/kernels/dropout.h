/*
 * The elements that dropout keeps are a pure function of the run's seed, the step, the micro-batch
 * and its data-parallel rank, the place in the model (layer and module), and the number of the
 * element in the whole tensor. So a recomputation, another pipeline layout and tensor parallelism
 * keep the same elements.
 */
#ifndef OFFSIM_REF_KERNELS_DROPOUT_H
#define OFFSIM_REF_KERNELS_DROPOUT_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

/* The key of everything but the element. */
uint64_t ref_dropout_key(const exec_call *c);
bool ref_is_kept(uint64_t key, uint64_t element, double probability);

#endif
