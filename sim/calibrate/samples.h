/*
 * What the samples of kernels in a training say: how long each call takes at full clock, and how
 * much longer products and attention take under power throttling.
 *
 * The latter is one number of each kind, of all models together: calls of one kind differ less than
 * it is uncertain how much power a single one lacked, such as one that runs alone after the
 * optimizer.
 */
#ifndef OFFSIM_SIM_CALIBRATE_SAMPLES_H
#define OFFSIM_SIM_CALIBRATE_SAMPLES_H

#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/machine/call_time.h"
#include "sim/machine/machine.h"
#include "sim/plan/intern.h"
#include "sim/plan/plan.h"

/* AT_WORK: one kernel after the other, with the GAP to the next; AT_REST: with pauses. */
typedef enum sample_kind { AT_WORK, GAP, AT_REST, SAMPLE_KINDS } sample_kind;

typedef struct sample {
  uint32_t call; /* row of model_samples.calls */
  uint32_t kind;
  int64_t ps;
} sample;

/* Of one model. */
typedef struct model_samples {
  struct {
    sample *items;
    uint32_t count, capacity;
  } all;
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } step;             /* the calls of a step, from the last to the first */
  intern_table calls; /* of plan_call */
  struct {
    int64_t told_ps; /* when the last one was over and read */
    int64_t idle_ps; /* of all together: from step to step, less the kernels */
    uint32_t count;  /* of those that followed another */
  } steps;
} model_samples;

/* What a call takes: the mean of its samples without the longest and the shortest tenth. */
typedef struct sampled_call {
  plan_call call;
  int64_t ps;                /* at full clock; at that of a GPU at work where no limit is known */
  int64_t slowdown_permille; /* of its own, as in measured_call (call_time.h); -1: none */
} sampled_call;

/* Least squares: longer_ps = slowdown x lack x ps, over all calls. Sums of the one side and the
 * other, times the lack. */
typedef struct slowdown_sums {
  int64_t longer_ps[SLOWED_KINDS], lacking_ps[SLOWED_KINDS];
} slowdown_sums;

typedef struct sampled_calls {
  sampled_call *items;
  uint32_t count, capacity;
} sampled_calls;

/* What counts for the time of a call. */
plan_call call_without_views(const plan_call *c);

/* Returns the call's row. samples_release: but for .calls, which lies in an arena. */
uint32_t samples_add(model_samples *to, const plan_call *call, sample_kind kind, int64_t ps);
void samples_release(model_samples *s);

/* Adds the model's calls but those that are `known`, and makes them known. `slowdowns`: NULL, or
 * there are samples of a GPU at rest, and what they say is added. Reorders the samples. */
void samples_take(const machine *m, model_samples *s, intern_table *known, sampled_calls *to,
                  slowdown_sums *slowdowns, arena *a);

/* -1: the power sufficed. */
int64_t samples_slowdown_permille(const slowdown_sums *s, slowed_kind kind);

#endif
