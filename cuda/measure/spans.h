/*
 * Computes the spans of ops from the GPUs' activities and from the ops' launches. No CUPTI here:
 * CUPTI provides the two lists, in any order, joined by its number of each launch.
 */
#ifndef OFFSIM_CUDA_MEASURE_SPANS_H
#define OFFSIM_CUDA_MEASURE_SPANS_H

#include "cuda/measure/measure.h"

/* A kernel, copy or fill that ran. */
typedef struct activity {
  uint32_t launch; /* all nodes of a graph have the number of the graph's launch */
  uint32_t device;
  int64_t begin_ns, end_ns;
} activity;

typedef struct activity_array {
  activity *items;
  uint32_t count, capacity;
} activity_array;

/* A launch of an op, or of a graph. */
typedef struct claim {
  uint32_t launch;
  uint32_t rank;
  uint32_t op; /* a graph: the op after its last */
  bool of_graph;
} claim;

typedef struct claim_array {
  claim *items;
  uint32_t count, capacity;
} claim_array;

typedef struct rank_spans {
  uint32_t op_count;
  measure_span *spans;   /* by op */
  uint32_t *captured;    /* by op: kernels, copies and fills that it added to a graph */
  uint32_t *graph_first; /* [op_count + 1]: by the op after a graph's last, its first op */
} rank_spans;

/* Fills in the spans, which are zero. Sorts both arrays. */
measure_tally spans_join(activity_array *activities, claim_array *claims, rank_spans *ranks);

#endif
