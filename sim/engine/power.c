#include "sim/engine/power.h"

#include "sim/base/units.h"

enum { PPM = 1000000 };
enum { WINDOW_SLICES = 6 };
#define SLICE_PS (POWER_WINDOW_PS / WINDOW_SLICES)

/* 1 nJ a picosecond is 1000 W. */
static int64_t excess_ppm(const machine *m, int64_t energy_nj, int64_t time_ps)
{
  const int64_t mw = 1000 * 1000;
  int64_t limit_mw = m->gpu.power_limit_w * 1000;
  if (limit_mw == 0 || time_ps == 0) return 0;
  int64_t kernels_mw = muldiv_i64(energy_nj, mw, time_ps);
  int64_t over_mw = m->gpu.power_base_w * 1000 + kernels_mw - limit_mw;
  return over_mw <= 0 ? 0 : min_i64(INT32_MAX, muldiv_i64(over_mw, PPM, limit_mw));
}

void power_curve_new(power_curve *c, int64_t length_ps, arena *a)
{
  c->length_ps = length_ps;
  c->slices = (uint32_t)(length_ps / SLICE_PS + 1);
  c->slice_ps = length_ps / c->slices + 1;
  c->excess_ppm = ARENA_ARRAY(a, int64_t, c->slices);
}

void power_curve_add(power_curve *c, int64_t begin_ps, int64_t end_ps, int64_t energy_nj)
{
  int64_t added = 0;
  if (energy_nj == 0) return;
  for (int64_t from = begin_ps, to; from < end_ps; from = to) {
    int64_t slice = from / c->slice_ps;
    to = min_i64(end_ps, (slice + 1) * c->slice_ps);
    int64_t until = muldiv_i64(energy_nj, to - begin_ps, end_ps - begin_ps);
    c->excess_ppm[slice] += until - added;
    added = until;
  }
}

/* From what each slice has to what the window that it ends has; in a ring, oldest values are kept
 * until they leave it. */
bool power_curve_settle(power_curve *c, const machine *m)
{
  bool exceeds = false;
  uint32_t window = c->slices < WINDOW_SLICES ? c->slices : WINDOW_SLICES, next = 0;
  int64_t ring[WINDOW_SLICES], sum = 0;
  int64_t time_ps = window < c->slices ? window * c->slice_ps : c->length_ps;
  for (uint32_t i = 0; i < window; i++)
    sum += ring[i] = c->excess_ppm[c->slices - window + i];
  for (uint32_t i = 0; i < c->slices; i++) {
    sum += c->excess_ppm[i] - ring[next];
    ring[next] = c->excess_ppm[i];
    next = (next + 1) % window;
    c->excess_ppm[i] = excess_ppm(m, sum, time_ps);
    exceeds |= c->excess_ppm[i] > 0;
  }
  return exceeds;
}

int64_t power_curve_excess_ppm(const power_curve *c, int64_t at_ps)
{
  return c->excess_ppm[at_ps / c->slice_ps];
}
