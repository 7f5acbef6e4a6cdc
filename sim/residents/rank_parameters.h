/*
 * The places of a pipeline rank's parameters: each one's gradient in the gradient buffers and,
 * with buffered parameters, its weight at the same element of that buffer's parameter buffer.
 *
 * With Megatron-FSDP only the places of gradients are known (fsdp_buffers.h): there is a buffer of
 * each type, and where gradients are sharded, the parameters of a group share its part.
 */
#ifndef OFFSIM_SIM_RESIDENTS_RANK_PARAMETERS_H
#define OFFSIM_SIM_RESIDENTS_RANK_PARAMETERS_H

#include "sim/graph/graph.h"
#include "sim/residents/gradient_buffers.h"

typedef struct parameter_place {
  uint32_t buffer; /* index into the gradient buffers */
  int64_t start;   /* elements */
  int64_t shared;  /* elements that the parameters of its group share; 0: it has its own */
} parameter_place;

typedef struct rank_parameters {
  parameter_list list;
  gradient_buffer_list buffers;
  parameter_place *places; /* [list.count] */
  bool buffered;           /* weights are in parameter buffers, not in separate tensors */
  bool in_groups;          /* Megatron-FSDP's */
} rank_parameters;

/* In the arena. Settings must be resolved. */
rank_parameters rank_parameters_of(const settings *s, uint32_t pp_rank, arena *a);

/* Sets the places of the parameters of a chunk's graph, with their layouts (graph.places).
 * Megatron's own merged tensors, whose elements have another order, get no place. */
void rank_parameters_place(const rank_parameters *r, const settings *s, uint32_t chunk, graph *g);

#endif
