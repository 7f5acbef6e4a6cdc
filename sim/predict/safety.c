#include "sim/predict/safety.h"

#include <assert.h>

#include "sim/predict/common_plans.h"

bool safety_find(safety *found, const settings *s, uint32_t threads, arena *a, diag *d)
{
  *found = (safety){ 0 };
  if (!compile(&found->first, s, ITERATION_WARMUP, a, d) ||
      !compile(&found->later, s, ITERATION_STEADY, a, d))
    return false;
  verify_plan(&found->verified[0], &found->first.plan, NULL, threads, a);
  verify_plan(&found->verified[1], &found->later.plan, &found->first.plan, threads, a);
  found->iterations[0] = (verified_iteration){ "warmup", &found->verified[0] };
  found->iterations[1] = (verified_iteration){ "steady", &found->verified[1] };
  assert(found->first.plan.rank_count == found->later.plan.rank_count);
  found->safe = found->verified[0].safe && found->verified[1].safe;
  return found->complete = true;
}

plan_safety plan_safety_of(const plan *p, const plan *before, uint32_t threads)
{
  arena scratch = { 0 };
  verification v;
  verify_errors(&v, p, before, threads, &scratch);
  plan_safety found = { .errors = v.counts[SEVERITY_ERROR] };
  if (v.findings.count > 0) {
    found.first_kind = finding_name((finding_kind)v.findings.items[0].kind);
    found.first_rank = v.findings.items[0].rank;
  }
  assert(v.safe == (found.errors == 0) && v.safe == (found.first_kind == NULL));
  verification_release(&v);
  arena_release(&scratch);
  return found;
}

safety_summary safety_summary_of(const plan_safety *first, const plan_safety *later)
{
  const plan_safety *unsafe = first->first_kind != NULL ? first : later;
  return (safety_summary){ .errors = { first->errors, later->errors },
                           .first_kind = unsafe->first_kind,
                           .first_rank = unsafe->first_rank };
}

bool settings_are_safe(const settings *s, diag *d)
{
  arena scratch = { 0 };
  common_plans plans = { 0 };
  bool safe = common_plans_are_safe(&plans, s, &scratch, d);
  common_plans_release(&plans);
  arena_release(&scratch);
  return safe;
}

void safety_release(safety *found)
{
  for (int i = 0; found->complete && i < SAFETY_ITERATIONS; i++)
    verification_release(&found->verified[i]);
  compilation_release(&found->first);
  compilation_release(&found->later);
}
