/*
 * Evaluates the samples of kernels in a training: the time of each call at full clock, and how much
 * longer products and attention take under power throttling.
 *
 * The latter is one number for each kind, over all models: the differences between calls of one
 * kind are smaller than the uncertainty of the power that a single call lacked, such as one that
 * runs alone after the optimizer.
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

/* The samples of one model. */
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
    int64_t told_ps; /* when the last step had ended and been read */
    int64_t idle_ps; /* total: from step to step, minus the kernels */
    uint32_t count;  /* number of steps that followed another */
  } steps;
} model_samples;

/* The time of a call: the mean of its samples without the longest and the shortest tenth. */
typedef struct sampled_call {
  plan_call call;
  int64_t ps;                /* at full clock; without a known limit, at the clock under load */
  int64_t slowdown_permille; /* the call's, as in measured_call (call_time.h); -1: none */
} sampled_call;

/* Least squares: longer_ps = slowdown x lack x ps, over all calls. Sums of both sides, times the
 * lack. */
typedef struct slowdown_sums {
  int64_t longer_ps[SLOWED_KINDS], lacking_ps[SLOWED_KINDS];
} slowdown_sums;

typedef struct sampled_calls {
  sampled_call *items;
  uint32_t count, capacity;
} sampled_calls;

/* The part of a call that its time depends on. */
plan_call call_without_views(const plan_call *c);

/* Returns the call's row. samples_release frees all but .calls, which is in an arena. */
uint32_t samples_add(model_samples *to, const plan_call *call, sample_kind kind, int64_t ps);
void samples_release(model_samples *s);

/* Adds the model's calls that are not yet `known`, and makes them known. `slowdowns`: NULL, or the
 * samples include a GPU at rest, and their slowdowns are added. Reorders the samples. */
void samples_take(const machine *m, model_samples *s, intern_table *known, sampled_calls *to,
                  slowdown_sums *slowdowns, arena *a);

/* -1: no call lacked power. */
int64_t samples_slowdown_permille(const slowdown_sums *s, slowed_kind kind);

#endif
