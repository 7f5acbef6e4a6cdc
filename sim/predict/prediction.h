/*
 * A prediction: one setting beside the same run without offload, as figures for each pipeline rank.
 *
 *     settings + machine -> compile -> simulate -> replay -> prediction
 *
 * It has three iterations: `baseline` is a steady iteration without offload, `warmup` the first
 * iteration of the setting, `result` a steady iteration of it.
 */
#ifndef OFFSIM_SIM_PREDICT_PREDICTION_H
#define OFFSIM_SIM_PREDICT_PREDICTION_H

#include <stdio.h>

#include "sim/compile/compile.h"
#include "sim/config/settings.h"
#include "sim/engine/engine.h"
#include "sim/engine/replay.h"
#include "sim/machine/machine.h"
#include "sim/predict/common_plans.h"
#include "sim/predict/safety_summary.h"
#include "sim/predict/throughput.h"

typedef struct rank_prediction {
  int64_t static_bytes;         /* allocated after the optimizer step */
  int64_t allocated_peak_bytes; /* since the process began, warm-up included: as torch reports it */
  int64_t steady_allocated_peak_bytes;
  int64_t requested_peak_bytes; /* of this iteration */
  int64_t live_peak_bytes;      /* on the clock; steady: of all steady iterations */
  int64_t reserved_peak_bytes;  /* since the process began */
  int64_t host_pinned_peak_bytes, host_pinned_pow2_bytes;
  int64_t host_pageable_peak_bytes; /* host memory that is not page-locked, of this iteration */
  int64_t d2h_bytes, h2d_bytes;     /* copied in this iteration */
  int64_t disk_write_bytes, disk_read_bytes;
  int64_t groups, offloaded_groups;
  int64_t theoretical_saving_bytes, simulated_saving_bytes;
  int64_t exposed_d2h_ps, exposed_h2d_ps, bubble_ps, compute_busy_ps, d2h_busy_ps, h2d_busy_ps;
  int64_t host_arithmetic_ps; /* the host's processor computed: an optimizer's step */
  int64_t optimizer_d2h_ps, optimizer_h2d_ps; /* copies of the optimizer step */
  int64_t waiting_slows_ps; /* copies take longer, because streams wait (sim/engine/slowdown.h) */
  int64_t step_ps;

  /* Of this iteration's allocated peak; except for the op, by `predict` alone. */
  uint32_t peak_op;                    /* the ALLOC that reached it */
  plan_mark peak_mark;                 /* the phase */
  const char *peak_module;             /* where in the model; "" outside the modules */
  int32_t peak_layer;                  /* 0-based, -1 outside the layers */
  const replay_holding *peak_holdings; /* what lives there, the most bytes first */
  uint32_t peak_holding_count;
  int64_t peak_by_class[BUFFER_CLASSES];

  bool out_of_memory;     /* the machine's memory was not enough */
  int64_t missing_bytes;  /* then, how much: see shortage */
  uint32_t back_pressure; /* requests that the driver refused at first */
} rank_prediction;

typedef struct iteration_prediction {
  int64_t step_ps;
  rank_prediction *ranks; /* [rank_count] */
} iteration_prediction;

/* Plans that something else has compiled from the settings, as text (sim/plan/text.h): another
 * version, whose runs were recorded. */
typedef struct plan_text {
  const char *file, *text;
  size_t length;
} plan_text;
typedef struct given_plans {
  plan_text of[2]; /* by iteration_kind */
} given_plans;

typedef struct prediction {
  const settings *settings;
  const given_plans *plans; /* NULL: compiled */
  const machine *machine;
  uint32_t rank_count, threads;
  iteration_prediction baseline, warmup, result;
  throughput speed;                /* of `result` */
  const char **defects;            /* [rank_count]: see offload_policy */
  int64_t capacity_bytes;          /* device memory that a framework can have */
  int64_t host_pinned_total_bytes; /* page-locked by all GPUs of the fullest host */
  int64_t host_total_bytes;        /* ... and their host memory that is not page-locked */
  bool fits_device, fits_host;
  const struct step_range *range;     /* sim/predict/range.h; NULL: not asked for */
  const int64_t *uneven_growth_bytes; /* sim/predict/uneven_load.h; NULL: not asked for */
  safety_summary safety; /* of the setting's first and steady iteration, if asked for */

  /* The steady iteration of the setting, for traces and plots. */
  compilation steady;
  timeline steady_timeline;
  memory_curve *curves; /* [rank_count], or NULL if not asked for */
} prediction;

/* What a prediction has only if it is asked for; each takes time. */
enum {
  PREDICT_CURVES = 1, /* the memory curves */
  PREDICT_SAFETY = 2  /* whether both plans are safe */
};

/* `plans` may be NULL; the run without offload is compiled in any case. `also`: what else is asked for, a
 * bit each. The result does not depend on `threads`, at least 1. False after a diag error. Release it
 * in either case. */
bool predict(prediction *p, const settings *s, const given_plans *plans, const machine *m,
             uint32_t also, uint32_t threads, arena *a, diag *d);
/* The same without the run without offload: `baseline` and savings stay empty, and peaks unexplained. */
bool predict_alone(prediction *p, const settings *s, const machine *m, arena *a, diag *d);
/* The same of plans that several settings share, which keep what is compiled and simulated of them:
 * `steady` and `steady_timeline` stay empty, too, and of fragmentation only the least is missing. `common` is
 * of `m` alone. */
bool predict_common(prediction *p, const settings *s, const machine *m, common_plans *common,
                    arena *a, diag *d);
void prediction_release(prediction *p);

/* ---- does it fit? ---- */

typedef enum shortage_cause {
  SHORT_OF_NOTHING,
  SHORT_BY_ALLOCATION,    /* what a rank allocates is more than there is */
  SHORT_BY_FRAGMENTATION, /* that is not, but what its allocator reserves for it */
  SHORT_ON_HOST           /* devices have enough; a host cannot pin so much */
} shortage_cause;

/*
 * What is missing, of the rank that misses most; by allocation: at the allocated peak, so that at
 * least as much must go; by fragmentation: of what the allocator would reserve if nothing refused
 * it, so that with as much more it would fit.
 */
typedef struct shortage {
  shortage_cause cause;
  uint32_t rank;         /* of devices */
  int64_t missing_bytes; /* > 0 unless nothing is missing */
} shortage;

shortage prediction_shortage(const prediction *p);

/* The rank that reserves most, and what it leaves of the device's memory; of one that fits. */
uint32_t prediction_fullest_rank(const prediction *p);
int64_t prediction_margin_bytes(const prediction *p);

/* What a rank's step is spent on: compute runs, or compute waits. */
typedef enum step_part {
  STEP_COMPUTE,
  STEP_D2H,    /* for copies to the host */
  STEP_H2D,    /* for copies from the host */
  STEP_BUBBLE, /* for other pipeline stages */
  STEP_HOST,   /* for the host thread, which issues work too slowly */
  STEP_PARTS
} step_part;

/* What limits the setting: the busiest stage, and what most of its step is spent on. */
typedef struct bottleneck {
  uint32_t rank;
  step_part part;
  int64_t part_ps;
  int64_t added_ps; /* to the step by offload; 0: less than a thousandth of it */
  /* Where compute waits longest for copies, and for which copies there; 0: nowhere. */
  uint32_t exposed_rank;
  step_part exposed_part;
  int64_t exposed_ps;
} bottleneck;

bottleneck prediction_bottleneck(const prediction *p);

/* The steady iteration as a trace (traces/record.h): ops with their times. A rank is a pipeline
 * rank; contents are not known. The prediction must have kept its curves. `scenario`: what was
 * predicted, by name. False after a diag error. */
bool prediction_record(const prediction *p, const char *scenario, const char *path, diag *d);
/* The same into an open stream. */
void prediction_record_to(const prediction *p, const char *scenario, FILE *stream);

#endif
