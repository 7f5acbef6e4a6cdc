#include "sim/cli/calibrate_samples.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/units.h"
#include "sim/engine/power.h"
#include "sim/machine/call_time.h"

/* A slowdown is measured in parts of what was lacking in power: of so much, at least. */
enum { LEAST_EXCESS_PPM = 50000 };

plan_call call_without_views(const plan_call *c)
{
  plan_call bare = *c;
  bare.views = bare.view_count = 0;
  return bare;
}

uint32_t samples_add(model_samples *to, const plan_call *call, sample_kind kind, int64_t ps)
{
  uint32_t row = intern(&to->calls, call, sizeof *call);
  *ARRAY_PUSH(&to->all) = (sample){ row, kind, ps };
  return row;
}

void samples_release(model_samples *s)
{
  ARRAY_FREE(&s->all);
  ARRAY_FREE(&s->step);
}

/* ---- means ----------------------------------------------------------------------------------- */

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

/* ---- how the limit of power slows them ------------------------------------------------------- */

static plan_call call_at(const model_samples *s, uint32_t row)
{
  plan_call call;
  memcpy(&call, s->calls.keys[row].bytes, sizeof call);
  return call;
}

/* A GPU that comes out of a pause is not at its best: where power suffices, it is faster at work.
 */
static int64_t full_clock_ps(const call_means *c)
{
  return min_i64(c->ps[AT_REST], c->ps[AT_WORK]) + c->ps[GAP];
}

static int64_t idle_ps(const model_samples *s)
{
  return s->steps.idle_ps / max_i64(1, s->steps.count);
}

/* A step at full clock: behind a pause its kernels one after the other. */
static power_curve curve_of(const machine *m, const model_samples *s, const call_means *means,
                            arena *a)
{
  int64_t at_ps = idle_ps(s);
  power_curve curve;
  for (uint32_t i = 0; i < s->step.count; i++)
    at_ps += full_clock_ps(&means[s->step.items[i]]);
  power_curve_new(&curve, max_i64(1, at_ps), a);
  for (uint32_t i = 0; i < s->step.count; i++) {
    plan_call call = call_at(s, s->step.items[i]);
    int64_t end_ps = at_ps;
    at_ps -= full_clock_ps(&means[s->step.items[i]]);
    power_curve_add(&curve, at_ps, end_ps, call_energy_nj(m, &call));
  }
  power_curve_settle(&curve, m);
  return curve;
}

/* Power that was lacking when a call ran, the mean by call. */
static int64_t *lacks_of(const machine *m, const model_samples *s, const call_means *means,
                         arena *a)
{
  int64_t *lacks_ppm = ARENA_ARRAY(a, int64_t, s->calls.count), at_ps = idle_ps(s);
  uint32_t *times = ARENA_ARRAY(a, uint32_t, s->calls.count);
  power_curve curve = curve_of(m, s, means, a);
  for (uint32_t i = s->step.count; i-- > 0;) {
    uint32_t row = s->step.items[i];
    lacks_ppm[row] += power_curve_excess_ppm(&curve, at_ps);
    times[row]++;
    at_ps += full_clock_ps(&means[row]);
  }
  for (uint32_t row = 0; row < s->calls.count; row++)
    lacks_ppm[row] /= max_i64(1, times[row]);
  return lacks_ppm;
}

static int64_t slowdown_permille(const call_means *c, int64_t lacks_ppm)
{
  int64_t longer_ps = c->ps[AT_WORK] - c->ps[AT_REST];
  if (lacks_ppm < LEAST_EXCESS_PPM) return -1;
  if (longer_ps <= 0) return 0;
  return muldiv_i64(muldiv_i64(longer_ps, 1000000, full_clock_ps(c)), 1000, lacks_ppm);
}

void samples_take(const machine *m, bool rests, model_samples *s, intern_table *known,
                  sampled_calls *to, arena *a)
{
  const call_means *means = means_of(s, a);
  const int64_t *lacks_ppm = rests ? lacks_of(m, s, means, a) : NULL;
  for (uint32_t i = 0; i < s->calls.count; i++) {
    uint32_t before = known->count;
    plan_call call = call_at(s, i);
    if (intern(known, &call, sizeof call) < before) continue;
    int64_t ps = rests ? full_clock_ps(&means[i]) : means[i].ps[AT_WORK] + means[i].ps[GAP];
    *ARRAY_PUSH(to) =
        (sampled_call){ call, ps, rests ? slowdown_permille(&means[i], lacks_ppm[i]) : -1 };
  }
}
