#include "sim/predict/safety.h"

#include <assert.h>

bool safety_find(safety *found, const settings *s, arena *a, diag *d)
{
  *found = (safety){ 0 };
  if (!compile(&found->first, s, ITERATION_WARMUP, a, d) ||
      !compile(&found->later, s, ITERATION_STEADY, a, d))
    return false;
  verify_plan(&found->verified[0], &found->first.plan, NULL, a);
  verify_plan(&found->verified[1], &found->later.plan, &found->first.plan, a);
  found->iterations[0] = (verified_iteration){ "warmup", &found->verified[0] };
  found->iterations[1] = (verified_iteration){ "steady", &found->verified[1] };
  assert(found->first.plan.rank_count == found->later.plan.rank_count);
  found->safe = found->verified[0].safe && found->verified[1].safe;
  return found->complete = true;
}

void safety_release(safety *found)
{
  for (int i = 0; found->complete && i < SAFETY_ITERATIONS; i++)
    verification_release(&found->verified[i]);
  compilation_release(&found->first);
  compilation_release(&found->later);
}
