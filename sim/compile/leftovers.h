/*
 * What the autograd graph of a layer leaves (graph_part, and leaves_graph of graph_node in a checkpoint): it
 * stays until the layer's forward runs for another micro-batch. A recomputation is such a run.
 */
#ifndef OFFSIM_SIM_COMPILE_LEFTOVERS_H
#define OFFSIM_SIM_COMPILE_LEFTOVERS_H

#include "sim/compile/walk.h"

/* The layer's forward runs: what its last run has left goes. */
void leftovers_forget(walk *w, instance_id i, uint32_t layer);
/* The instance's run of the layer leaves the buffer, unless a newer run has begun. */
void leftovers_add(walk *w, instance_id i, uint32_t layer, uint32_t buffer);

/* At the end of the iteration: one leftover of that size stays for the next iteration, the others
 * are freed. False: none has that size. */
bool leftovers_keep_one(walk *w, int64_t bytes);
void leftovers_end(walk *w);

/* Rows of walk.left: one for each layer, with those of multi-token prediction; 0: nothing was left. */
uint32_t leftovers_layers(const walk *w);

#endif
