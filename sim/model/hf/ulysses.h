/*
 * Ulysses sequence parallelism (parallel.context_parallel_size of model.implementation hf):
 * attention sees all positions and a part of the heads. Tensors are [b, heads, positions, width].
 * Nothing happens on one rank.
 */
#ifndef OFFSIM_SIM_MODEL_HF_ULYSSES_H
#define OFFSIM_SIM_MODEL_HF_ULYSSES_H

#include "sim/graph/graph.h"

/* Replaces query, key and value by those of this rank's heads, for all positions. */
void hf_ulysses_enter(graph *g, const settings *s, tensor_id *query, tensor_id *key,
                      tensor_id *value);
/* The attention of all heads for this rank's positions. */
tensor_id hf_ulysses_leave(graph *g, const settings *s, tensor_id attention);

#endif
