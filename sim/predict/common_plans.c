#include "sim/predict/common_plans.h"

#include <assert.h>

#include "sim/verify/verify.h"

settings common_settings(const settings *s)
{
  settings common = *s;
  common.software.expandable_segments = false;
  return common;
}

bool common_plans_compile(common_plans *c, const settings *s, iteration_kind kind, arena *a,
                          diag *d)
{
  assert((unsigned)kind < ITERATION_KINDS);
  return c->compiled[kind].plan.rank_count > 0 || compile(&c->compiled[kind], s, kind, a, d);
}

bool common_plans_are_safe(common_plans *c, const settings *s, arena *a, diag *d)
{
  const plan *first = &c->compiled[ITERATION_WARMUP].plan;
  const plan *steady = &c->compiled[ITERATION_STEADY].plan;
  return common_plans_compile(c, s, ITERATION_WARMUP, a, d) && plan_is_safe(first, NULL) &&
         common_plans_compile(c, s, ITERATION_STEADY, a, d) && plan_is_safe(steady, first);
}

void common_plans_take_times(common_plans *c, common_plans *from)
{
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    timeline *times = &from->times[kind];
    assert(c->times[kind].rank_count == 0 && "nothing is timed yet");
    if (times->rank_count == 0) continue;
    if (!plan_is_same(&c->compiled[kind].plan, &from->compiled[kind].plan)) continue;
    c->times[kind] = *times;
    *times = (timeline){ 0 };
  }
}

void common_plans_release(common_plans *c)
{
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    timeline_release(&c->times[kind]);
    compilation_release(&c->compiled[kind]);
  }
  *c = (common_plans){ 0 };
}
