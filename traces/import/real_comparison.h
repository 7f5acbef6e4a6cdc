/*
 * A prediction compared with a real run. Kernels may differ: frameworks fuse and split them. So the
 * two are aligned by passes (forward and backward of a chunk of a micro-batch) and by copies, whose
 * bytes and order are the schedule of offloading; times are compared by class, memory by peaks and
 * by the blocks that live there.
 */
#ifndef OFFSIM_TRACES_IMPORT_REAL_COMPARISON_H
#define OFFSIM_TRACES_IMPORT_REAL_COMPARISON_H

#include "traces/import/copy_waits.h"
#include "traces/import/run_memory.h"
#include "traces/import/run_summary.h"
#include "traces/record.h"

/* A block that lives at the predicted peak of allocated memory. */
typedef struct predicted_block {
  int64_t bytes; /* as the allocator rounds them */
  const char *tensor, *module;
  int32_t layer; /* -1: outside the layers */
  bool resident; /* from before the step */
} predicted_block;

typedef struct predicted_pass {
  real_pass_kind kind; /* REAL_FINISH: neither forward nor backward */
  uint32_t microbatch, chunk;
} predicted_pass;

typedef struct predicted_run {
  const trace *record;
  uint32_t rank;                 /* of the record */
  int64_t without_peak_bytes;    /* allocated, of the same run without offload; -1: unknown */
  int64_t tokens, gpus;          /* of all ranks in a step; 0: unknown */
  const predicted_block *blocks; /* NULL: unknown */
  uint32_t block_count;
  /* What its host does; copies have the number of their op, passes are marks. None: unknown. */
  const action *actions;
  uint32_t action_count, op_count;
  uint32_t stream_count, compute_stream;
  const predicted_pass *mark_passes; /* by mark */
} predicted_run;

typedef struct measured_run {
  const real_run *run;
  const run_summary *summary;
  const run_memory *memory;   /* NULL: no snapshot */
  int64_t step_ns;            /* logged without the profiler; 0: the record's own */
  uint32_t dropped_passes;    /* of steps before the one that is compared */
  int64_t without_peak_bytes; /* logged of the same run without offload; -1: the prediction's */
} measured_run;

enum { SIDE_PREDICTED, SIDE_MEASURED, SIDES };

/* ---- passes ---- */

typedef struct pass_figures {
  int64_t
      peak_bytes[SIDES]; /* highest allocated bytes while it is issued, predicted ones without tails
                              * of blocks; -1: unknown */
  int64_t time_ps[SIDES]; /* from its first work but copies to its last; -1: unknown */
} pass_figures;

/* ---- copies ---- */

typedef enum copy_finding {
  COPY_SAME,
  COPY_REORDERED,  /* in the same pass, before or after others than predicted */
  COPY_EARLY,      /* in an earlier pass than predicted */
  COPY_LATE,       /* in a later one */
  COPY_MISSING,    /* only predicted */
  COPY_ADDITIONAL, /* only measured */
  COPY_FINDINGS
} copy_finding;

const char *copy_finding_name(copy_finding f);

/* A copy's waits: for compute, which is before it; and compute's for the copy, after it. */
typedef enum wait_order { WAIT_BEFORE, WAIT_AFTER, WAIT_ORDERS } wait_order;

/* Of the wait after it: early and late are of the pass in which compute waits. */
typedef enum wait_finding {
  WAIT_SAME, /* also: neither waits */
  WAIT_EARLY,
  WAIT_LATE,
  WAIT_MISSING,
  WAIT_ADDITIONAL,
  WAIT_FINDINGS
} wait_finding;

const char *wait_order_name(wait_order o);
const char *wait_finding_name(wait_finding f);

typedef struct compared_copy {
  copy_finding finding;
  int64_t bytes;
  uint32_t op, span;    /* of the record's ops, of the run's spans; REAL_NONE: has none */
  uint32_t pass[SIDES]; /* REAL_NONE: unknown */
  wait_finding wait[WAIT_ORDERS];
  uint32_t awaited[SIDES]; /* the pass of the wait after it, pass_count: after all; AWAITED_NEVER */
} compared_copy;

/* Which streams copies of a direction use. */
typedef enum copy_place { PLACE_NONE, PLACE_OWN, PLACE_BOTH_WAYS, PLACE_WITH_KERNELS } copy_place;
const char *copy_place_name(copy_place p);

typedef struct direction_comparison {
  uint32_t count[SIDES];
  int64_t bytes[SIDES], busy_ps[SIDES], exposed_ps[SIDES]; /* exposed: -1: unknown */
  copy_place place[SIDES];
  uint32_t found[COPY_FINDINGS];
  uint32_t waits[WAIT_ORDERS][WAIT_FINDINGS]; /* of copies that both have */
  compared_copy *copies; /* in the order of the prediction, additional ones at the end */
  uint32_t copy_count;
} direction_comparison;

/* ---- memory ---- */

/* Blocks of one size at the peak that one line of code, or one tensor of a module, holds. */
typedef struct block_owner {
  uint32_t count;
  const predicted_block *predicted; /* NULL: measured */
  uint32_t frame;                   /* of measured ones */
} block_owner;

/* A size of which the sides hold different numbers of blocks at their peaks. Blocks of one size
 * cannot be told apart, so all owners of that size are listed: predicted ones first, the most
 * blocks first. */
typedef struct block_difference {
  int64_t bytes; /* of one block */
  uint32_t count[SIDES];
  block_owner *owners;
  uint32_t owner_count;
} block_difference;

typedef enum real_measure {
  REAL_ALLOCATED,
  REAL_ACTIVE,
  REAL_RESERVED,
  REAL_MEASURES
} real_measure;

typedef struct real_comparison {
  predicted_run predicted;
  measured_run measured;
  predicted_pass *passes; /* forward and backward, as predicted */
  uint32_t pass_count;
  uint32_t measured_pass_count;
  bool same_passes;           /* as many, of the same kinds in the same order */
  pass_figures *pass_figures; /* [pass_count] if same_passes */
  direction_comparison d2h, h2d;
  bool same_copies; /* order, bytes, places */
  bool waits_compared;
  int64_t step_ps[SIDES];
  int64_t class_ps[KERNEL_CLASS_COUNT][SIDES]; /* sums over kernels */
  int64_t idle_ps[SIDES];                      /* neither kernel nor copy */
  int64_t peak_bytes[REAL_MEASURES][SIDES];    /* -1: unknown */
  int64_t resident_bytes[SIDES]; /* held at the peak from before the step; -1: unknown */
  uint32_t paired_blocks;
  block_difference *differences; /* most surplus bytes first */
  uint32_t difference_count;
  int64_t theoretical_saving_bytes;
  int64_t saving_bytes[SIDES]; /* simulated, measured; -1: unknown */
} real_comparison;

/* Forward and backward passes as predicted, in their order. */
const real_pass_kind *predicted_pass_kinds(const predicted_run *p, uint32_t *count, arena *a);

/* Both must outlive it; memory is from the arena. */
real_comparison compare_real(const predicted_run *predicted, const measured_run *measured,
                             arena *a);

/* (predicted - measured) / measured in parts per million; false: one of them is unknown. */
bool real_step_error_ppm(const real_comparison *c, int64_t *ppm);
bool real_peak_error_ppm(const real_comparison *c, int64_t *ppm); /* allocated */
/* Waits that are missing or late. */
uint32_t real_wrong_waits(const real_comparison *c);

/* Measured over theoretical saving. */
bool real_ratio_ppm(const real_comparison *c, int side, int64_t *ppm);

#endif
