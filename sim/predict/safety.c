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

static void add_iteration(safety_summary *sum, int i, const plan *p, const plan *before)
{
  arena scratch = { 0 };
  verification v;
  verify_plan(&v, p, before, &scratch);
  sum->errors[i] = v.counts[SEVERITY_ERROR];
  for (uint32_t f = 0; f < v.findings.count && sum->first_kind == NULL; f++) {
    const finding *found = &v.findings.items[f];
    if (finding_severity_of((finding_kind)found->kind) != SEVERITY_ERROR) continue;
    sum->first_kind = finding_name((finding_kind)found->kind);
    sum->first_rank = found->rank;
  }
  assert(v.safe == (sum->errors[i] == 0) && (v.safe || sum->first_kind != NULL));
  verification_release(&v);
  arena_release(&scratch);
}

safety_summary safety_summarize(const settings *s, const plan *later)
{
  arena scratch = { 0 };
  diag quiet = { .quiet = true };
  compilation first = { 0 }, steady = { 0 };
  safety_summary sum = { 0 };
  bool ok = compile(&first, s, ITERATION_WARMUP, &scratch, &quiet) &&
            (later != NULL || compile(&steady, s, ITERATION_STEADY, &scratch, &quiet));
  assert(ok && "it has been compiled before");
  if (ok) {
    add_iteration(&sum, 0, &first.plan, NULL);
    add_iteration(&sum, 1, later != NULL ? later : &steady.plan, &first.plan);
  }
  compilation_release(&steady);
  compilation_release(&first);
  arena_release(&scratch);
  return sum;
}

void safety_release(safety *found)
{
  for (int i = 0; found->complete && i < SAFETY_ITERATIONS; i++)
    verification_release(&found->verified[i]);
  compilation_release(&found->first);
  compilation_release(&found->later);
}
