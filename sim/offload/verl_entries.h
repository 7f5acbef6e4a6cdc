/*
 * The tensors of a layer that verl moves (verl/utils/activation_offload.py: FSDPParameterFilter,
 * _get_unique_tensor_key).
 */
#ifndef OFFSIM_SIM_OFFLOAD_VERL_ENTRIES_H
#define OFFSIM_SIM_OFFLOAD_VERL_ENTRIES_H

#include "sim/offload/shape.h"

/* With fewer layers nothing is offloaded. */
enum { VERL_LEAST_LAYERS = 3 };

/* All but the last layer leave. */
static inline uint32_t verl_offloaded_layers(uint32_t layers)
{
  return layers < VERL_LEAST_LAYERS ? 0 : layers - 1;
}

/* Every tensor, of any size, except those in the storage of one of the layer's parameters. */
static inline bool verl_entry_leaves(const saved_entry *e)
{
  return !e->parameter && !e->of_parameter;
}

#endif
