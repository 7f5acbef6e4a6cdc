#include "sim/predict/safety.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "sim/predict/common_plans.h"

bool safety_find(safety *found, const settings *s, uint32_t threads, arena *a, diag *d)
{
  *found = (safety){ 0 };
  lowered_ranks l = lower_ranks(s, threads);
  bool compiled = compile_lowered(&found->first, s, &l, ITERATION_WARMUP, threads, a, d) &&
                  compile_lowered(&found->later, s, &l, ITERATION_STEADY, threads, a, d);
  lowered_ranks_release(&l);
  if (!compiled) return false;
  verify_plan(&found->verified[0], &found->first.plan, NULL, threads, a);
  verify_plan(&found->verified[1], &found->later.plan, &found->first.plan, threads, a);
  found->iterations[0] = (verified_iteration){ "warmup", &found->verified[0] };
  found->iterations[1] = (verified_iteration){ "steady", &found->verified[1] };
  assert(found->first.plan.rank_count == found->later.plan.rank_count);
  found->safe = found->verified[0].safe && found->verified[1].safe;
  return found->complete = true;
}

/* The tensor in the buffer, or else the op. */
static first_error first_error_of(const plan *p, const finding *f)
{
  first_error e = { .kind = finding_name((finding_kind)f->kind), .rank = f->rank };
  const rank_plan *r = &p->ranks[f->rank];
  const char *tensor = "", *separator = "";
  const plan_site *site = &p->sites.items[0];
  if (f->buffer != NO_BUFFER) {
    const plan_tensor *t = &p->tensors.items[r->buffers.items[f->buffer].tensor];
    tensor = t->name;
    separator = ", ";
    site = &p->sites.items[t->site];
  } else if (f->second != NO_OP) {
    site = &p->sites.items[r->ops.items[f->second].site];
  }
  if (site->layer >= 0)
    snprintf(e.where, sizeof e.where, "%s%slayer %" PRId32 " %s", tensor, separator, site->layer,
             site->module);
  else
    snprintf(e.where, sizeof e.where, "%s%s%s", tensor, *site->module != '\0' ? separator : "",
             site->module);
  return e;
}

plan_safety plan_safety_of(const plan *p, const plan *before, uint32_t threads)
{
  arena scratch = { 0 };
  verification v;
  verify_errors(&v, p, before, threads, &scratch);
  plan_safety found = { .errors = v.counts[SEVERITY_ERROR] };
  if (v.findings.count > 0) found.first = first_error_of(p, &v.findings.items[0]);
  assert(v.safe == (found.errors == 0) && v.safe == (found.first.kind == NULL));
  verification_release(&v);
  arena_release(&scratch);
  return found;
}

safety_summary safety_summary_of(const plan_safety *first, const plan_safety *later)
{
  return (safety_summary){ .errors = { first->errors, later->errors },
                           .first = first->first.kind != NULL ? first->first : later->first };
}

first_error settings_first_error(const settings *s, diag *d)
{
  arena scratch = { 0 };
  common_plans plans = { 0 };
  first_error error = { .kind = NULL };
  const plan *before = NULL;
  for (int kind = 0; kind < ITERATION_KINDS && error.kind == NULL; kind++) {
    finding found;
    const plan *p = &plans.compiled[kind].plan;
    if (!common_plans_compile(&plans, s, (iteration_kind)kind, &scratch, d)) break;
    if (plan_first_error(&found, p, before)) error = first_error_of(p, &found);
    before = p;
  }
  common_plans_release(&plans);
  arena_release(&scratch);
  return error;
}

void safety_release(safety *found)
{
  for (int i = 0; found->complete && i < SAFETY_ITERATIONS; i++)
    verification_release(&found->verified[i]);
  compilation_release(&found->first);
  compilation_release(&found->later);
}
