/*
 * A prediction compared with a measurement of the same plan: times of ops, copies and steps in
 * both.
 *
 * Ops are paired one by one, rank by rank, if both traces issue the same ops; errors are (predicted
 * - measured) / measured, in parts per million.
 */
#ifndef OFFSIM_TRACES_TIMING_H
#define OFFSIM_TRACES_TIMING_H

#include "sim/base/arena.h"
#include "traces/record.h"

enum { TIMING_WORST = 10 };

typedef enum timing_side { PREDICTED, MEASURED, TIMING_SIDES } timing_side;

/* All ops with one name: "gemm", "d2h". */
typedef struct class_timing {
  const char *name;
  uint32_t count;
  int64_t total_ps[TIMING_SIDES];
  int64_t median_error_ppm, p95_error_ppm; /* of single ops; p95 of the error's magnitude */
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
  class_timing *classes; /* longest measured time first */
  uint32_t class_count;
  timed_pair worst[TIMING_WORST]; /* largest absolute error first */
  uint32_t worst_count;
  int64_t step_ps[TIMING_SIDES]; /* median of the steps after the first */
} timing;

/* Whether both have times and one of them is a prediction, which *predicted is then. */
bool timing_applies(const trace *a, const trace *b, const trace **predicted,
                    const trace **measured);

/* Both traces share their table of texts and must outlive it. */
timing trace_timing(const trace *predicted, const trace *measured, arena *a);

typedef struct timings {
  timing with;
  const timing *without; /* the same without offload; NULL: not given */
} timings;

/* Savings of one rank, bytes; R is measured over simulated. -1: unknown. */
typedef struct saving_figures {
  int64_t theoretical, simulated, measured;
} saving_figures;

/* The compared memory: what frameworks count as allocated, in program order, or what is live on the
 * device, including blocks that a stream still uses. */
typedef enum saved_memory { SAVED_ALLOCATED, SAVED_LIVE, SAVED_MEMORIES } saved_memory;

/* False: unknown, because there is no run without offload. */
bool timing_saving(const timings *r, uint32_t rank, saved_memory of, saving_figures *s);

/* Figures of a rank; predicted ones are its stage's. */
const trace_figures *timing_figures(const timing *t, timing_side side, uint32_t rank);

/* Step time over that without offload, minus 1, in parts per million. */
int64_t timing_overhead_ppm(const timings *r, timing_side side);

/* The worst of all ranks; false: no rank has it. For the peak of live memory, the magnitude of the
 * error; for R, the least over all ranks that save something. Parts per million. */
bool timing_peak_error_ppm(const timings *t, int64_t *ppm);
bool timing_ratio_ppm(const timings *t, int64_t *ppm);

/* The magnitude of the error of the step and of the overhead, in parts per million of a step. */
bool timing_step_error_ppm(const timings *t, int64_t *ppm);
bool timing_overhead_error_ppm(const timings *t, int64_t *ppm);

/* The median of the steps after the first, or the only step; 0: no clock. */
int64_t median_step_ps(const trace *t);

/* (predicted - measured) / measured; 0 if nothing was measured. */
int64_t error_ppm(int64_t predicted, int64_t measured);

#endif
