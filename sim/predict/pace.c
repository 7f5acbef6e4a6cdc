#include "sim/predict/pace.h"

#include <assert.h>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/power.h"

enum { PPM = 1000000 };

call_run call_run_of(const rank_plan *p, const call_cost *costs, const machine *m, arena *a)
{
  call_run r = { .machine = m, .items = ARENA_ARRAY(a, const call_cost *, p->ops.count) };
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (op_is_call((op_kind)o->kind) && o->stream == STREAM_COMPUTE)
      r.items[r.count++] = &costs[o->arg];
  }
  return r;
}

/* 1 nJ per ps is 1000 W. */
int64_t pace_milliwatts(int64_t nj, int64_t ps)
{
  return ps == 0 ? 0 : capped_muldiv(nj, PPM, ps);
}

int64_t pace_slowdown_ps(const call_cost *c)
{
  return capped_muldiv(c->ps, c->power_permille, 1000);
}

/* Sum of slowdown x time over the worst stretch of calls that take no more than `most_ps`; the step
 * repeats. */
static int64_t worst_stretch_ps(const call_run *r, int64_t most_ps)
{
  int64_t worst_ps = 0, sum_ps = 0, taken_ps = 0;
  for (uint32_t first = 0, end = 0; first < r->count; first++) {
    for (; end < first + r->count; end++) {
      const call_cost *c = r->items[end % r->count];
      if (taken_ps + c->ps > most_ps) break;
      taken_ps += c->ps;
      sum_ps += pace_slowdown_ps(c);
    }
    worst_ps = max_i64(worst_ps, sum_ps);
    if (end == first) {
      end++;
      continue;
    }
    taken_ps -= r->items[first]->ps;
    sum_ps -= pace_slowdown_ps(r->items[first]);
  }
  return worst_ps;
}

/* By how much a stretch may exceed a mean slowdown. */
static int64_t most_beyond_ps(const call_run *r, int64_t mean_ppm)
{
  int64_t most_ps = 0, sum_ps = 0;
  for (uint32_t i = 0; i < 2 * r->count; i++) {
    const call_cost *c = r->items[i % r->count];
    sum_ps = max_i64(0, sum_ps + pace_slowdown_ps(c) - capped_muldiv(c->ps, mean_ppm, PPM));
    most_ps = max_i64(most_ps, sum_ps);
  }
  return most_ps;
}

static void find_slowdowns(paced *p, const call_run *r)
{
  int64_t longest_ps = 0, sum_ps = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    const call_cost *c = r->items[i];
    sum_ps += pace_slowdown_ps(c);
    if (pace_slowdown_ps(c) > 0) longest_ps = max_i64(longest_ps, c->ps);
    p->most_mw = max_i64(p->most_mw, pace_milliwatts(c->energy_nj, c->ps) + 1);
  }
  int64_t stretch_ps = POWER_FAST_PS + longest_ps;
  p->mean_mw = pace_milliwatts(p->energy_nj, p->step_ps) + 1;
  p->mean_slowdown_ppm =
      1 + max_i64(capped_muldiv(sum_ps, PPM, p->step_ps),
                  capped_muldiv(worst_stretch_ps(r, stretch_ps), PPM, stretch_ps));
  int64_t slide_ps = capped_muldiv(stretch_ps, p->mean_slowdown_ppm, PPM) +
                     most_beyond_ps(r, p->mean_slowdown_ppm);
  p->slide_slowdown_ppm = 1 + capped_muldiv(slide_ps, PPM, POWER_FAST_PS);
}

static power_curve curve_of(const call_run *r, int64_t step_ps)
{
  power_curve curve = power_curve_new(step_ps);
  int64_t at_ps = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    const call_cost *c = r->items[i];
    power_curve_add(&curve, STREAM_COMPUTE, at_ps, at_ps + c->ps, c->energy_nj);
    at_ps += c->ps;
  }
  return curve;
}

static void add_slowed(paced *p, const call_run *r, uint32_t before)
{
  power_curve curve = curve_of(r, p->step_ps);
  int64_t at_ps = 0;
  p->least_excess_ppm = power_curve_excess_ppm(&curve, r->machine, p->step_ps);
  for (uint32_t i = 0; i < r->count; i++) {
    const call_cost *c = r->items[i];
    int64_t excess_ppm = power_curve_excess_ppm(&curve, r->machine, at_ps);
    int64_t more_ps = capped_muldiv(pace_slowdown_ps(c), excess_ppm, PPM);
    *(i < before ? &p->before_ps : &p->after_ps) += more_ps;
    p->least_excess_ppm = min_i64(p->least_excess_ppm, excess_ppm);
    at_ps += c->ps;
  }
  power_curve_free(&curve);
}

paced pace_of(const call_run *r, uint32_t before, bool slowed)
{
  paced p = { .limit_mw = slowed ? r->machine->gpu.power_limit_w * 1000 : 0 };
  for (uint32_t i = 0; i < r->count; i++) {
    const call_cost *c = r->items[i];
    *(i < before ? &p.before_ps : &p.after_ps) += c->ps;
    p.energy_nj = min_i64(CAP, p.energy_nj + c->energy_nj);
  }
  p.step_ps = p.before_ps + p.after_ps;
  if (p.limit_mw == 0 || p.step_ps == 0) return p;
  find_slowdowns(&p, r);
  add_slowed(&p, r, before);
  return p;
}

int64_t pace_rest_ppm(const paced *p, int64_t mw)
{
  if (p->limit_mw == 0) return 0;
  int64_t slides = p->step_ps < POWER_FAST_PS ? 0 : p->step_ps < POWER_SLOW_PS ? 2 : 3;
  int64_t most = capped_muldiv(max_i64(0, p->most_mw - mw), p->slide_slowdown_ppm, p->limit_mw);
  int64_t mean = capped_muldiv(max_i64(0, p->mean_mw - mw), p->mean_slowdown_ppm, p->limit_mw);
  return 1 + (slides * most + (3 - slides) * mean) / 3;
}

int64_t pace_holds_ps(const paced *p)
{
  if (p->limit_mw == 0 || p->step_ps >= POWER_SLOW_PS) return INT64_MAX;
  return p->step_ps >= POWER_FAST_PS ? POWER_SLOW_PS : POWER_FAST_PS;
}

int64_t pace_least_ps(const paced *p)
{
  int64_t slowed_ps = p->before_ps + p->after_ps - p->step_ps, gains_ppm = pace_rest_ppm(p, 0);
  int64_t rest_ps = gains_ppm > PPM ? capped_muldiv(slowed_ps, PPM, gains_ppm) : slowed_ps;
  assert(slowed_ps >= 0);
  return min_i64(p->step_ps + rest_ps, pace_holds_ps(p));
}

int64_t pace_less_busier_ps(int64_t ps)
{
  return ps - capped_muldiv(ps, ENGINE_BUSIER_PPM, PPM);
}
