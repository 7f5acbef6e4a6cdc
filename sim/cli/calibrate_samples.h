/*
 * What the samples of kernels in a training say of their calls: how long each takes at full clock,
 * and how much longer when the GPU lacks power.
 */
#ifndef OFFSIM_SIM_CLI_CALIBRATE_SAMPLES_H
#define OFFSIM_SIM_CLI_CALIBRATE_SAMPLES_H

#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/machine/machine.h"
#include "sim/plan/intern.h"
#include "sim/plan/plan.h"

/* AT_WORK, one kernel behind the other, with the GAP to the next; AT_REST, with pauses. */
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
    uint32_t count;  /* of those that came behind another */
  } steps;
} model_samples;

/* What a call takes: the mean of its samples without the longest and the shortest tenth. */
typedef struct sampled_call {
  plan_call call;
  int64_t ps;                /* at full clock; at that of a GPU at work where no limit is known */
  int64_t slowdown_permille; /* as in measured_call (call_time.h), -1: not known */
} sampled_call;

typedef struct sampled_calls {
  sampled_call *items;
  uint32_t count, capacity;
} sampled_calls;

/* What counts for the time of a call. */
plan_call call_without_views(const plan_call *c);

/* Returns the call's row. samples_release: but for .calls, which lies in an arena. */
uint32_t samples_add(model_samples *to, const plan_call *call, sample_kind kind, int64_t ps);
void samples_release(model_samples *s);

/* `rests`: there are samples of a GPU at rest. Adds the model's calls but those that are `known`,
 * and makes them known. Reorders the samples. */
void samples_take(const machine *m, bool rests, model_samples *s, intern_table *known,
                  sampled_calls *to, arena *a);

#endif
