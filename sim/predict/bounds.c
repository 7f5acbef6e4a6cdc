#include "sim/predict/bounds.h"

#include "sim/base/units.h"
#include "sim/compile/compile.h"
#include "sim/engine/engine.h"
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

bool step_bound(int64_t *step_ps, const settings *without_offload, const machine *m, arena *a,
                diag *d)
{
  machine *at_full_clock = ARENA_NEW(a, machine);
  *at_full_clock = *machine_of(without_offload, m, a);
  at_full_clock->gpu.power_limit_w = 0;
  compilation c = { 0 };
  timeline t = { 0 };
  bool ok = compile(&c, without_offload, ITERATION_STEADY, a, d) &&
            simulate(&t, &c.plan, at_full_clock, places_of_ranks(without_offload, m, a), d);
  if (ok) *step_ps = t.step_ps;
  timeline_release(&t);
  compilation_release(&c);
  return ok;
}
