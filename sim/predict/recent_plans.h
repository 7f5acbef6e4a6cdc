/*
 * The plans of settings that a search has predicted last, for those that come next. Neighbours often
 * differ in the mode of PyTorch's allocator alone, and then have both plans in common (common_plans.h).
 * Or they differ in what leaves the device, and Megatron's first iteration, which offloads everything,
 * is the same op by op: then it takes the same time. If no more differs than how much leaves, the chunks
 * are the same (lowered_settings), and the first iteration as a whole (first_iteration_settings).
 *
 *     recent_run *own = recent_run_new();
 *     own->settings = ...                                // resolved, from own->memory
 *     recent_run *run = recent_plans_find(r, own);       // own, or an earlier one with these plans
 *     predict_beside(..., &run->plans, ...)
 *     recent_plans_keep(r, own, run, true)
 */
#ifndef OFFSIM_SIM_PREDICT_RECENT_PLANS_H
#define OFFSIM_SIM_PREDICT_RECENT_PLANS_H

#include <xxhash.h>

#include "sim/predict/common_plans.h"

typedef struct recent_run {
  settings settings;
  common_plans plans; /* of settings that have them in common with these */
  arena first_memory; /* of the first iteration's plan */
  arena memory;       /* of everything else */
  /* What they are found by: these settings, those that the first iteration sees, those that lowering sees,
   * and the run beside them. */
  XXH128_hash_t common, first, lowered, beside;
} recent_run;

recent_run *recent_run_new(void);

typedef struct recent_plans recent_plans;

/* Of one machine; keeps up to `most` runs. Threads may share it. From `a`; release it too. */
recent_plans *recent_plans_new(uint32_t most, arena *a);
void recent_plans_release(recent_plans *r);

/* A run whose plans are compiled, which no other thread has until it is kept; NULL: these settings are
 * refused. */
recent_run *recent_plans_find(recent_plans *r, recent_run *own);

/* Takes back `own`, and the run that recent_plans_find returned for it. `useful`: they were predicted. */
void recent_plans_keep(recent_plans *r, recent_run *own, recent_run *found, bool useful);

#endif
