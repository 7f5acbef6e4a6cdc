/*
 * Two traces, op by op: do they issue the same work in the same order, hold the same memory at
 * every op, and write the same bits? Nothing is compared with a tolerance.
 *
 * Where a rank's ops are the same in both traces they are paired one by one. Where they are not, as
 * with and without offload, its kernels, collectives and messages are paired by their place in the
 * model: step, phase, micro-batch, chunk, layer, module, call and the names of what they write; if
 * several ops of a trace have all that in common, in their order, and only if the other trace has
 * as many. So what only one of them issues (copies, recomputation) is left out, and cannot put what
 * follows out of step.
 */
#ifndef OFFSIM_TRACES_COMPARE_H
#define OFFSIM_TRACES_COMPARE_H

#include "traces/record.h"

/* Both NULL: none; one of them NULL: that trace has ended. */
typedef struct trace_pair {
  const trace_op *a, *b;
} trace_pair;

typedef struct rank_comparison {
  uint32_t ops_a, ops_b;
  trace_pair order;             /* the first ops that differ in what, where or on which stream */
  int64_t highest_a, highest_b; /* requested bytes, of all its ops */
  uint32_t bytes_differ; /* ops at which requested bytes differ; where ops differ: not compared */
  trace_pair bytes;      /* the first of them */
} rank_comparison;

typedef struct trace_comparison {
  const trace *a, *b;
  uint32_t rank_count; /* of the trace that has more */
  rank_comparison *ranks;
  bool same_order, same_bytes; /* on all ranks; bytes only if the order is the same */
  uint32_t pairs;              /* ops compared with each other */
  uint32_t only_a, only_b;     /* ops without a partner */
  uint32_t outputs;            /* of pairs, with contents known in both */
  uint32_t outputs_differ;
  trace_pair output;     /* the first op, by `a`'s order in time, of which one differs */
  uint32_t output_index; /* which of its outputs */
} trace_comparison;

/* Both traces share their table of texts and must outlive the comparison. */
void trace_compare(trace_comparison *c, const trace *a, const trace *b, arena *memory);

#endif
