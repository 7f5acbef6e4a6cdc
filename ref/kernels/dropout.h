/*
 * Which elements dropout keeps: a pure function of the run's seed, the step, the micro-batch and
 * the data-parallel rank it belongs to, the place in the model (layer and module), and the number
 * of the element in the whole tensor: a recomputation, another pipeline layout or tensor
 * parallelism decides alike.
 */
#ifndef OFFSIM_REF_KERNELS_DROPOUT_H
#define OFFSIM_REF_KERNELS_DROPOUT_H

#include <stdbool.h>

#include "ref/kernels/kernel.h"

/* All but the element. */
uint64_t ref_dropout_key(const exec_call *c);
bool ref_is_kept(uint64_t key, uint64_t element, double probability);

#endif
