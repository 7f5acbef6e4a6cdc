/*
 * What a search for the best setting varies: recomputation, offload, expandable segments.
 *
 *   Megatron-LM   recomputation: none, every set of modules, uniform layers, block layers
 *                 offload: none, every set of modules by fraction, a number of layers
 *   Hugging Face  every offload system with its variants and recomputations
 *
 * The choices are what each could be; the settings' rules refuse combinations that cannot run.
 * Modules that change nothing in this model's plan are left out.
 */
#ifndef OFFSIM_SIM_TUNE_CHOICES_H
#define OFFSIM_SIM_TUNE_CHOICES_H

#include "sim/sweep/space.h"

/* Adds the axes to a space that has none of their keys, for a device that has `device_bytes` for PyTorch.
 * A choice sets only what differs from what was given. `keep_all`: what every setting is without
 * recomputation and offload, from `a`; NULL where the space varied something before. False after a
 * diag error. */
bool choices_add(space *to, const settings *given, const settings *resolved, int64_t device_bytes,
                 const settings **keep_all, arena *a, diag *d);

#endif
