/*
 * When everything that a plan's ops launch ran on its GPU: CUPTI's activity records of kernels,
 * copies and fills, which put nothing of ours into the streams.
 *
 *     measure *m = measure_open(d);                      // best before the first use of a GPU
 *     measure_begin(m, rank_count, op_counts, d);        // an iteration; its begin is time 0
 *     ... in each rank's host thread, around the issue of each op:
 *     measure_op_begin(m, rank, op);
 *     ...                                                // launches, copies, fills
 *     measure_op_end(m);
 *     ... when all streams are done:
 *     measure_collect(m, d);
 *     const measure_span *spans = measure_spans(m, rank);
 *     measure_close(m);
 *
 * Graphs: ops that are being captured are begun and ended like all others; the launch of the graph
 * is begun by measure_graph_begin instead. What ran is dealt out to the captured ops in the order
 * of capture; if that cannot be told, all of them get the span of the whole graph.
 *
 * CUPTI keeps its records in memory of its own, some of it on the device: what a run that is
 * measured takes from a GPU says nothing about memory.
 *
 * CUPTI is loaded when it is asked for. There can be one measure at a time in a process.
 */
#ifndef OFFSIM_CUDA_MEASURE_MEASURE_H
#define OFFSIM_CUDA_MEASURE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"

typedef struct measure measure;

/* From the begin of the first to the end of the last thing that an op launched. */
typedef struct measure_span {
  int64_t begin_ns, end_ns; /* since measure_begin; both 0: the op launched nothing */
  uint32_t device;          /* number of the GPU as CUDA counts */
  uint32_t launches;        /* how many things; 0 for an op of a graph that has the graph's span */
} measure_span;

/* Of the iteration that was collected last. */
typedef struct measure_tally {
  int64_t records; /* of kernels, copies and fills of ops */
  int64_t foreign; /* ... that ran for no op: sums for fingerprints, what the driver does itself */
  int64_t dropped; /* that CUPTI had no room for: if there are any, spans may be too short */
} measure_tally;

/* NULL after a diag error (status 3): offsim was built without CUDA, there is no CUPTI, or another
 * profiler has it. */
measure *measure_open(diag *d);
void measure_close(measure *m);

/* Forgets what was measured. All streams are done, no host thread is issuing. `op_counts[rank]`:
 * ops of the rank, which are numbered from 0. What runs before the first call is not slowed down.
 * False after a diag error (status 3). */
bool measure_begin(measure *m, uint32_t rank_count, const uint32_t *op_counts, diag *d);

/* By the thread that issues the op, one op at a time. */
void measure_op_begin(measure *m, uint32_t rank, uint32_t op);
void measure_op_end(measure *m);
/* The launch of what the ops first <= op < end of the rank were captured into, by the same thread
 * that captured them; ended by measure_op_end. */
void measure_graph_begin(measure *m, uint32_t rank, uint32_t first, uint32_t end);

/* All streams are done. False after a diag error (status 3). */
bool measure_collect(measure *m, diag *d);
const measure_span *measure_spans(const measure *m, uint32_t rank); /* by op */
measure_tally measure_count(const measure *m);

/* Nanoseconds since measure_begin, on the clock of the spans. */
int64_t measure_now_ns(const measure *m);

#endif
