/*
 * A prediction beside a measurement of the same plan: how long ops, copies and steps took in both.
 *
 * Ops are paired one by one, rank by rank, where both traces issue the same; errors are predicted
 * less measured, in parts per million of the measured.
 */
#ifndef OFFSIM_TRACES_TIMING_H
#define OFFSIM_TRACES_TIMING_H

#include "sim/base/arena.h"
#include "traces/record.h"

enum { TIMING_WORST = 10 };

typedef enum timing_side { PREDICTED, MEASURED, TIMING_SIDES } timing_side;

/* All ops of one name: "gemm", "d2h". */
typedef struct class_timing {
  const char *name;
  uint32_t count;
  int64_t total_ps[TIMING_SIDES];
  int64_t median_error_ppm, p95_error_ppm; /* of single ops; p95 of the error's size */
} class_timing;

typedef struct timed_pair {
  const trace_op *op[TIMING_SIDES];
} timed_pair;

/* One direction of copies of one rank. Exposed: no kernel ran, and a copy did. */
typedef struct copy_timing {
  int64_t bytes, busy_ps, exposed_ps;
} copy_timing;

typedef struct rank_timing {
  int64_t compute_ps[TIMING_SIDES]; /* kernels on the compute stream */
  copy_timing d2h[TIMING_SIDES], h2d[TIMING_SIDES];
} rank_timing;

typedef struct timing {
  const trace *of[TIMING_SIDES];
  uint32_t rank_count;
  rank_timing *ranks;
  class_timing *classes; /* the longest measured first */
  uint32_t class_count;
  timed_pair worst[TIMING_WORST]; /* by the error's size in time */
  uint32_t worst_count;
  int64_t step_ps[TIMING_SIDES]; /* median of the steps after the first */
} timing;

/* Are both clocked, one of them a prediction? Then that one is *predicted. */
bool timing_applies(const trace *a, const trace *b, const trace **predicted,
                    const trace **measured);

/* Both traces share their table of texts and must outlive it. */
timing trace_timing(const trace *predicted, const trace *measured, arena *a);

typedef struct timings {
  timing with;
  const timing *without; /* the same without offload; NULL: not given */
} timings;

/* Savings of one rank, bytes; R is measured over simulated. -1: not known. */
typedef struct saving_figures {
  int64_t theoretical, simulated, measured;
} saving_figures;

/* What is compared: what the host holds, which is what frameworks count as allocated, or what is
 * live on the device, blocks that a stream still uses included. */
typedef enum saved_memory { SAVED_ALLOCATED, SAVED_LIVE, SAVED_MEMORIES } saved_memory;

/* False: not known without a run without offload. */
bool timing_saving(const timings *r, uint32_t rank, saved_memory of, saving_figures *s);

/* Figures of a rank, predicted: of its stage. */
const trace_figures *timing_figures(const timing *t, timing_side side, uint32_t rank);

/* Step times over those without offload, less 1, in parts per million. */
int64_t timing_overhead_ppm(const timings *r, timing_side side);

/* The worst of all ranks; false: none of them has it. Of live memory's peak, the error's size; R,
 * the least, over all ranks that save something. Parts per million. */
bool timing_peak_error_ppm(const timings *t, int64_t *ppm);
bool timing_ratio_ppm(const timings *t, int64_t *ppm);

/* The error's size, of the step and of the overhead, which is in parts per million of a step. */
bool timing_step_error_ppm(const timings *t, int64_t *ppm);
bool timing_overhead_error_ppm(const timings *t, int64_t *ppm);

/* Of the steps after the first one, or of the only one; 0: no clock. */
int64_t median_step_ps(const trace *t);

/* (predicted - measured) / measured; 0 if nothing was measured. */
int64_t error_ppm(int64_t predicted, int64_t measured);

#endif
