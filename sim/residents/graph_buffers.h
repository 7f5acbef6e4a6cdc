/* Device memory that captured CUDA graphs keep beside their pool. */
#ifndef OFFSIM_SIM_RESIDENTS_GRAPH_BUFFERS_H
#define OFFSIM_SIM_RESIDENTS_GRAPH_BUFFERS_H

#include "sim/residents/static_writer.h"

/* Transformer Engine's graphs: what a replay copies its inputs and the gradients of its outputs
 * into. The pool of the graphs, where activations and outputs lie, is not counted: it counts as
 * free between captures, and its size is that of the same tensors without graphs. */
void write_graph_buffers(static_writer *w);

#endif
