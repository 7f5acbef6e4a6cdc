/*
 * Where the parameters of a pipeline rank stand: each one's gradient in the gradient buffers, and
 * with buffered parameters its weight, at the same element of that buffer's parameter buffer.
 */
#ifndef OFFSIM_SIM_RESIDENTS_RANK_PARAMETERS_H
#define OFFSIM_SIM_RESIDENTS_RANK_PARAMETERS_H

#include "sim/graph/graph.h"
#include "sim/residents/gradient_buffers.h"

typedef struct parameter_place {
  uint32_t buffer; /* index into the gradient buffers */
  int64_t start;   /* elements */
} parameter_place;

typedef struct rank_parameters {
  parameter_list list;
  gradient_buffer_list buffers;
  parameter_place *places; /* [list.count] */
  bool buffered;           /* weights stand in parameter buffers, not in tensors of their own */
} rank_parameters;

/* In the arena. Settings must be resolved. */
rank_parameters rank_parameters_of(const settings *s, uint32_t pp_rank, arena *a);

/* Tells the graph of a chunk which of them its parameters are, and how they lie (graph.places).
 * What is not found stays untold: Megatron's own merged tensors, whose elements stand in another
 * order. */
void rank_parameters_place(const rank_parameters *r, const settings *s, uint32_t chunk, graph *g);

#endif
