/* Device memory that captured CUDA graphs keep in addition to their pool. */
#ifndef OFFSIM_SIM_RESIDENTS_GRAPH_BUFFERS_H
#define OFFSIM_SIM_RESIDENTS_GRAPH_BUFFERS_H

#include "sim/residents/static_writer.h"

/* Transformer Engine's graphs: the buffers into which a replay copies its inputs and the
 * gradients of its outputs. The graphs' pool, which holds activations and outputs, is not
 * counted: it counts as free between captures, and it is as large as the same tensors without
 * graphs. */
void write_graph_buffers(static_writer *w);

#endif
