#include "sim/engine/power.h"

#include <assert.h>

#include "sim/base/units.h"

enum {
  PPM = 1000000,
  FAST_SLICES = 6,
  FAST_COUNTS = 2 /* of each fast window, for one slow one */
};
#define SLICE_PS (POWER_FAST_PS / FAST_SLICES)
enum { SLOW_SLICES = POWER_SLOW_PS / SLICE_PS };

void power_curve_new(power_curve *c, int64_t length_ps, arena *a)
{
  assert(length_ps >= 0);
  c->length_ps = length_ps;
  c->slices = (uint32_t)(length_ps / SLICE_PS + 1);
  c->slice_ps = length_ps / c->slices + 1;
  c->excess_ppm = ARENA_ARRAY(a, int64_t, c->slices);
  c->until_nj = ARENA_ARRAY(a, int64_t, c->slices + 1);
}

void power_curve_add(power_curve *c, int64_t begin_ps, int64_t end_ps, int64_t energy_nj)
{
  int64_t added = 0;
  if (energy_nj == 0) return;
  assert(begin_ps <= end_ps && end_ps <= c->length_ps && energy_nj > 0);
  for (int64_t from = begin_ps, to; from < end_ps; from = to) {
    int64_t slice = from / c->slice_ps;
    to = min_i64(end_ps, (slice + 1) * c->slice_ps);
    int64_t until = muldiv_i64(energy_nj, to - begin_ps, end_ps - begin_ps);
    c->until_nj[slice + 1] = min_i64(CAP, c->until_nj[slice + 1] + (until - added));
    added = until;
  }
  assert((added == energy_nj || begin_ps == end_ps) && "no energy is lost");
}

/* Energy of the `count` slices that end with this one. The step repeats: before its first slice
 * comes its last. */
static int64_t window_energy_nj(const power_curve *c, uint32_t slice, uint32_t count)
{
  uint32_t end = slice + 1;
  assert(slice < c->slices && count <= c->slices);
  if (end >= count) return c->until_nj[end] - c->until_nj[end - count];
  return c->until_nj[end] + c->until_nj[c->slices] - c->until_nj[c->slices + end - count];
}

/* 1 nJ per ps is 1000 W. */
static int64_t excess_ppm(const machine *m, int64_t energy_nj, int64_t time_ps)
{
  const int64_t mw = 1000 * 1000;
  assert(energy_nj >= 0 && time_ps >= 0 && m->gpu.power_limit_w > 0);
  if (time_ps == 0) return 0;
  int64_t demand_mw = m->gpu.power_base_w * 1000 + capped_muldiv(energy_nj, mw, time_ps);
  int64_t ppm = capped_muldiv(demand_mw, PPM, m->gpu.power_limit_w * 1000);
  return min_i64(INT32_MAX, ppm - PPM);
}

static int64_t window_excess_ppm(const power_curve *c, const machine *m, uint32_t slice,
                                 uint32_t count)
{
  assert(slice < c->slices);
  if (count >= c->slices) return excess_ppm(m, c->until_nj[c->slices], c->length_ps);
  return excess_ppm(m, window_energy_nj(c, slice, count), count * c->slice_ps);
}

bool power_curve_settle(power_curve *c, const machine *m)
{
  bool exceeds = false;
  if (m->gpu.power_limit_w == 0) return false;
  for (uint32_t i = 0; i < c->slices; i++)
    c->until_nj[i + 1] = min_i64(CAP, c->until_nj[i + 1] + c->until_nj[i]);
  for (uint32_t i = 0; i < c->slices; i++) {
    int64_t fast = window_excess_ppm(c, m, i, FAST_SLICES);
    int64_t slow = window_excess_ppm(c, m, i, SLOW_SLICES);
    assert(c->until_nj[i] <= c->until_nj[i + 1]);
    c->excess_ppm[i] = max_i64(0, (FAST_COUNTS * fast + slow) / (FAST_COUNTS + 1));
    exceeds |= c->excess_ppm[i] > 0;
  }
  return exceeds;
}

int64_t power_curve_excess_ppm(const power_curve *c, int64_t at_ps)
{
  int64_t slice = at_ps / c->slice_ps;
  assert(slice >= 0 && slice < c->slices);
  return c->excess_ppm[slice];
}
