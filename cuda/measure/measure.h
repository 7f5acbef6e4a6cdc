/*
 * The times of everything that a plan's ops launch on the GPU: CUPTI's activity records of kernels,
 * copies and fills, which add nothing to the streams.
 *
 *     measure *m = measure_open(d);                      // best before the first use of a GPU
 *     measure_begin(m, rank_count, op_counts, d);        // an iteration, which begins at time 0
 *     ... in each rank's host thread, around the issue of each op:
 *     measure_op_begin(m, rank, op);
 *     ...                                                // launches, copies, fills
 *     measure_op_end(m);
 *     ... when all streams are done:
 *     measure_collect(m, d);
 *     const measure_span *spans = measure_spans(m, rank);
 *     measure_close(m);
 *
 * Graphs: captured ops begin and end like all others; measure_graph_begin begins the launch of the
 * graph instead. The activities are assigned to the captured ops in the order of capture; if the
 * counts differ, all of these ops get the span of the whole graph.
 *
 * CUPTI keeps its records in its own memory, partly on the device: a measured run's use of GPU
 * memory means nothing.
 *
 * CUPTI is loaded at the first use. A process can have one measure at a time.
 */
#ifndef OFFSIM_CUDA_MEASURE_MEASURE_H
#define OFFSIM_CUDA_MEASURE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"

typedef struct measure measure;

/* From the beginning of the first to the end of the last activity that an op launched. */
typedef struct measure_span {
  int64_t begin_ns, end_ns; /* since measure_begin; both 0: the op launched nothing */
  uint32_t device;          /* CUDA's number of the GPU */
  uint32_t launches;        /* number of activities; 0 for an op that has its graph's span */
} measure_span;

/* Counts of the iteration that was collected last. */
typedef struct measure_tally {
  int64_t records; /* of kernels, copies and fills of ops */
  int64_t foreign; /* ... that belong to no op: sums for fingerprints, work of the driver */
  int64_t dropped; /* records that CUPTI dropped: if there are any, spans may be too short */
} measure_tally;

/* NULL after a diag error (status 3): offsim was built without CUDA, CUPTI is missing, or another
 * profiler uses it. */
measure *measure_open(diag *d);
void measure_close(measure *m);

/* Forgets what was measured. All streams are done, no host thread is issuing. `op_counts[rank]`:
 * number of the rank's ops. Work before the first call is not slowed down. False after a diag error
 * (status 3). */
bool measure_begin(measure *m, uint32_t rank_count, const uint32_t *op_counts, diag *d);

/* Called by the thread that issues the op, for one op at a time. */
void measure_op_begin(measure *m, uint32_t rank, uint32_t op);
void measure_op_end(measure *m);
/* The launch of the graph of the rank's ops first <= op < end, by the thread that captured them;
 * measure_op_end ends it. */
void measure_graph_begin(measure *m, uint32_t rank, uint32_t first, uint32_t end);

/* All streams are done. False after a diag error (status 3). */
bool measure_collect(measure *m, diag *d);
const measure_span *measure_spans(const measure *m, uint32_t rank); /* by op */
measure_tally measure_count(const measure *m);

/* Nanoseconds since measure_begin, on the clock of the spans. */
int64_t measure_now_ns(const measure *m);

#endif
