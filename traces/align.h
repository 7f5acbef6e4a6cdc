/*
 * The ops of a rank; and pairs of the ops of two traces that do the same work, by place in the model
 * (compare.h).
 */
#ifndef OFFSIM_TRACES_ALIGN_H
#define OFFSIM_TRACES_ALIGN_H

#include "traces/record.h"

/* Consecutive ops of one rank in a trace. */
typedef struct trace_slice {
  const trace *trace;
  uint32_t first, count;
} trace_slice;

/* The ops of a rank; of its stage, if the trace has pipeline ranks and the other trace has `ranks`
 * global ranks: Megatron-LM numbers a stage's ranks consecutively. */
trace_slice trace_slice_of(const trace *t, uint32_t rank, uint32_t ranks);

#define ALIGN_NONE UINT32_MAX

/* By op of `a`: its partner among the ops of `b`, both counted from the slices' first, or
 * ALIGN_NONE. */
uint32_t *align_ops(const trace_slice *a, const trace_slice *b, arena *memory);

#endif
