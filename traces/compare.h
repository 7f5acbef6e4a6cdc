/*
 * Compares two traces op by op: work and order, memory at every op, and written bits. There are no
 * tolerances.
 *
 * If a rank's ops are the same in both traces, they are paired one by one. If not, as with and
 * without offload, its kernels, collectives and messages are paired by their place in the model:
 * step, phase, micro-batch, chunk, layer, module, call and the names of their writes. Several ops
 * with the same place are paired in order, and only if the other trace has equally many. So ops
 * that only one trace issues (copies, recomputation) have no partner, and do not shift the pairs
 * after them.
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
  int64_t highest_a, highest_b; /* most requested bytes at any op */
  uint32_t bytes_differ; /* ops at which requested bytes differ; not compared if ops differ */
  trace_pair bytes;      /* the first of them */
} rank_comparison;

typedef struct trace_comparison {
  const trace *a, *b;
  uint32_t rank_count; /* of the trace with more ranks */
  rank_comparison *ranks;
  bool same_order, same_bytes; /* on all ranks; bytes only if the order is the same */
  uint32_t pairs;              /* number of compared pairs */
  uint32_t only_a, only_b;     /* ops without a partner */
  uint32_t outputs;            /* of pairs, with contents known in both */
  uint32_t outputs_differ;
  trace_pair output;     /* the first op, in order of `a`'s time, with a different output */
  uint32_t output_index; /* which of its outputs */
} trace_comparison;

/* Both traces share their table of texts and must outlive the comparison. */
void trace_compare(trace_comparison *c, const trace *a, const trace *b, arena *memory);

#endif
