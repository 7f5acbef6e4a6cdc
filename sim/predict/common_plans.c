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

void common_plans_release(common_plans *c)
{
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    timeline_release(&c->times[kind]);
    compilation_release(&c->compiled[kind]);
  }
  *c = (common_plans){ 0 };
}
