#include "sim/calibrate/samples.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/engine/power.h"

enum { PPM = 1000000 };

/* A slowdown is measured relative to the missing power, which must be enough: 5 percent over 40 ms
 * at work. */
#define LEAST_LACKING_PS (PS_PER_MS / 10)

plan_call call_without_views(const plan_call *c)
{
  plan_call bare = *c;
  bare.views = bare.view_count = 0;
  return bare;
}

uint32_t samples_add(model_samples *to, const plan_call *call, sample_kind kind, int64_t ps)
{
  assert(kind < SAMPLE_KINDS && ps >= 0);
  uint32_t row = intern(&to->calls, call, sizeof *call);
  *ARRAY_PUSH(&to->all) = (sample){ row, kind, ps };
  return row;
}

void samples_release(model_samples *s)
{
  ARRAY_FREE(&s->all);
  ARRAY_FREE(&s->step);
}

/* ---- means ---- */

static int by_call(const void *left, const void *right)
{
  const sample *a = left, *b = right;
  if (a->call != b->call) return a->call < b->call ? -1 : 1;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  return (a->ps > b->ps) - (a->ps < b->ps);
}

static int64_t mean_of(const sample *sorted, uint32_t count)
{
  uint32_t tenth = count / 10;
  int64_t sum = 0;
  assert(count == 0 || sorted[0].ps <= sorted[count - 1].ps);
  for (uint32_t i = tenth; i < count - tenth; i++)
    sum += sorted[i].ps;
  return count == 0 ? 0 : sum / (count - 2 * tenth);
}

typedef struct call_means {
  int64_t ps[SAMPLE_KINDS];
} call_means;

static call_means *means_of(model_samples *s, arena *a)
{
  call_means *means = ARENA_ARRAY(a, call_means, s->calls.count);
  if (s->all.count > 0) qsort(s->all.items, s->all.count, sizeof(sample), by_call);
  for (uint32_t i = 0, next; i < s->all.count; i = next) {
    const sample *first = &s->all.items[i];
    for (next = i; next < s->all.count && s->all.items[next].call == first->call &&
                   s->all.items[next].kind == first->kind;)
      next++;
    means[first->call].ps[first->kind] = mean_of(first, next - i);
  }
  return means;
}

/* ---- how the limit of power slows them ---- */

static plan_call call_at(const model_samples *s, uint32_t row)
{
  plan_call call;
  assert(row < s->calls.count);
  memcpy(&call, s->calls.keys[row].bytes, sizeof call);
  return call;
}

/* After a pause a GPU is not at its fastest: if power suffices, it is faster under load. */
static int64_t full_clock_ps(const call_means *c)
{
  return min_i64(c->ps[AT_REST], c->ps[AT_WORK]) + c->ps[GAP];
}

static int64_t idle_ps(const model_samples *s)
{
  return s->steps.idle_ps / max_i64(1, s->steps.count);
}

/* The power curve of a step at full clock: a pause, then its kernels one after the other, of which
 * the last comes first in .step. To free. */
static power_curve curve_of(const machine *m, const model_samples *s, const call_means *means)
{
  int64_t step_ps = idle_ps(s), at_ps = idle_ps(s);
  for (uint32_t i = 0; i < s->step.count; i++)
    step_ps += full_clock_ps(&means[s->step.items[i]]);
  power_curve curve = power_curve_new(max_i64(1, step_ps));
  for (uint32_t i = s->step.count; i-- > 0;) {
    plan_call call = call_at(s, s->step.items[i]);
    int64_t begin_ps = at_ps;
    at_ps += full_clock_ps(&means[s->step.items[i]]);
    power_curve_add(&curve, STREAM_COMPUTE, begin_ps, at_ps, call_energy_nj(m, &call));
  }
  return curve;
}

static int64_t part_ps(int64_t ps, int64_t ppm)
{
  return muldiv_i64(ps, ppm, PPM);
}

static void add_slowdowns(const machine *m, const model_samples *s, const call_means *means,
                          slowdown_sums *to)
{
  int64_t at_ps = idle_ps(s);
  power_curve curve = curve_of(m, s, means);
  for (uint32_t i = s->step.count; i-- > 0;) {
    uint32_t row = s->step.items[i];
    plan_call call = call_at(s, row);
    int64_t full_ps = full_clock_ps(&means[row]),
            lacks_ppm = power_curve_excess_ppm(&curve, m, at_ps),
            longer_ps = max_i64(0, means[row].ps[AT_WORK] - means[row].ps[AT_REST]);
    slowed_kind kind = call_slowed_kind(&call);
    at_ps += full_ps;
    if (kind == SLOWED_KINDS) continue;
    to->longer_ps[kind] += part_ps(longer_ps, lacks_ppm);
    to->lacking_ps[kind] += part_ps(part_ps(full_ps, lacks_ppm), lacks_ppm);
  }
  power_curve_free(&curve);
}

int64_t samples_slowdown_permille(const slowdown_sums *s, slowed_kind kind)
{
  if (s->lacking_ps[kind] < LEAST_LACKING_PS) return -1;
  return muldiv_i64(s->longer_ps[kind], 1000, s->lacking_ps[kind]);
}

void samples_take(const machine *m, model_samples *s, intern_table *known, sampled_calls *to,
                  slowdown_sums *slowdowns, arena *a)
{
  const call_means *means = means_of(s, a);
  bool rests = slowdowns != NULL;
  if (rests) add_slowdowns(m, s, means, slowdowns);
  for (uint32_t i = 0; i < s->calls.count; i++) {
    uint32_t before = known->count;
    plan_call call = call_at(s, i);
    if (intern(known, &call, sizeof call) < before) continue;
    int64_t ps = rests ? full_clock_ps(&means[i]) : means[i].ps[AT_WORK] + means[i].ps[GAP];
    assert(ps >= 0);
    *ARRAY_PUSH(to) = (sampled_call){ call, ps, -1 };
  }
}
