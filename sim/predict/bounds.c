#include "sim/predict/bounds.h"

#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/engine/engine.h"
#include "sim/predict/pace.h"
#include "sim/predict/places.h"
#include "sim/predict/requested.h"

bool allocated_bound(int64_t *bytes, const settings *s, arena *a, diag *d)
{
  compilation c = { 0 };
  bool ok = compile(&c, s, ITERATION_STEADY, a, d);
  *bytes = ok ? plan_requested_peak_bytes(&c.plan) : 0;
  compilation_release(&c);
  return ok;
}

static int64_t paced_step_ps(const rank_plan *p, const call_cost *costs, const machine *m, arena *a)
{
  call_run calls = call_run_of(p, costs, m, a);
  paced pace = pace_of(&calls, calls.count, true);
  return pace_less_busier_ps(pace_least_ps(&pace));
}

bool step_bound(int64_t *step_ps, const settings *without_offload, const machine *m, arena *a,
                diag *d)
{
  const machine *own = machine_of(without_offload, m, a);
  machine *at_full_clock = ARENA_NEW(a, machine);
  *at_full_clock = *own;
  at_full_clock->gpu.power_limit_w = 0;
  compilation c = { 0 };
  timeline t = { 0 };
  bool ok = compile(&c, without_offload, ITERATION_STEADY, a, d) &&
            simulate(&t, &c.plan, at_full_clock, places_of_ranks(without_offload, m, a), d);
  const call_cost *costs = ok ? call_costs(&c.plan, own, a) : NULL;
  if (ok) *step_ps = t.step_ps;
  for (uint32_t i = 0; ok && i < c.plan.rank_count; i++)
    *step_ps = max_i64(*step_ps, paced_step_ps(&c.plan.ranks[i], costs, own, a));
  timeline_release(&t);
  compilation_release(&c);
  return ok;
}
