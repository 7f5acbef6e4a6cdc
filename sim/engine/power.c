#include "sim/engine/power.h"

#include <assert.h>

#include "sim/base/array.h"
#include "sim/base/units.h"

enum {
  PPM = 1000000,
  FAST_COUNTS = 2 /* of the fast window, for one slow one */
};

power_curve power_curve_new(int64_t length_ps)
{
  assert(length_ps >= 0);
  return (power_curve){ .length_ps = length_ps };
}

/* Energy of a stream up to the end of a kernel. */
static int64_t until_end_nj(const power_span *k)
{
  return min_i64(CAP, k->before_nj + k->energy_nj);
}

static int64_t all_nj(const power_curve *c)
{
  int64_t nj = 0;
  for (uint32_t i = 0; i < c->used_count; i++)
    nj = min_i64(CAP, nj + c->streams[c->used[i]].nj);
  return nj;
}

/* The number of kernels that have begun; quick if it is `near` or a bit more. */
static uint32_t count_begun(const power_spans *l, uint32_t near, int64_t at_ps)
{
  uint32_t low = near, high = l->count;
  if (near > 0 && l->items[near - 1].begin_ps > at_ps) {
    low = 0;
    high = near - 1;
  }
  for (uint32_t step = 1; low + step <= high; step *= 2) {
    if (l->items[low + step - 1].begin_ps > at_ps)
      high = low + step - 1;
    else
      low += step;
  }
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (l->items[middle].begin_ps > at_ps)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Energy of a stream from the step's begin to a time. */
static int64_t stream_until_nj(power_spans *l, power_edge edge, int64_t at_ps)
{
  uint32_t begun = l->begun[edge] = count_begun(l, l->begun[edge], at_ps);
  if (begun == 0) return 0;
  const power_span *k = &l->items[begun - 1];
  if (at_ps >= k->end_ps) return until_end_nj(k);
  int64_t part_nj = muldiv_i64(k->energy_nj, at_ps - k->begin_ps, k->end_ps - k->begin_ps);
  assert(part_nj >= 0 && part_nj <= k->energy_nj && "the kernel has begun and has not ended");
  return min_i64(CAP, k->before_nj + part_nj);
}

/* The step repeats: at_ps may be one length before or after it. */
static int64_t until_nj(power_curve *c, power_edge edge, int64_t at_ps)
{
  int64_t nj = 0, length_ps = c->length_ps;
  int64_t in_step_ps = at_ps < 0           ? at_ps + length_ps
                       : at_ps > length_ps ? at_ps - length_ps
                                           : at_ps;
  assert(in_step_ps >= 0 && in_step_ps <= length_ps);
  for (uint32_t i = 0; i < c->used_count; i++)
    nj = min_i64(CAP, nj + stream_until_nj(&c->streams[c->used[i]], edge, in_step_ps));
  if (at_ps == in_step_ps) return nj;
  return at_ps < 0 ? nj - all_nj(c) : nj + all_nj(c);
}

/* The power that the GPU draws while its kernels take this energy. 1 nJ per ps is 1000 W. */
static inline int64_t demand_mw(const machine *m, int64_t energy_nj, int64_t time_ps)
{
  const int64_t mw = 1000 * 1000;
  assert(energy_nj >= 0 && time_ps > 0);
  return m->gpu.power_base_w * 1000 + capped_muldiv(energy_nj, mw, time_ps);
}

/* Over the window of that length from begin_ps on; `end_nj`: the energy up to its end. Inline, so that the
 * compiler divides by a constant. */
static inline int64_t window_mw(power_curve *c, const machine *m, power_edge begin,
                                int64_t begin_ps, int64_t end_nj, int64_t window_ps)
{
  if (window_ps >= c->length_ps) return demand_mw(m, all_nj(c), c->length_ps);
  return demand_mw(m, end_nj - until_nj(c, begin, begin_ps), window_ps);
}

static int64_t excess_ppm(int64_t drawn_mw, int64_t limit_mw)
{
  return min_i64(INT32_MAX, capped_muldiv(drawn_mw, PPM, limit_mw) - PPM);
}

int64_t power_curve_most_ppm(power_curve *c, const machine *m, int64_t from_ps, int64_t to_ps)
{
  assert(from_ps >= 0 && from_ps <= to_ps && to_ps <= c->length_ps && m->gpu.power_limit_w >= 0);
  if (m->gpu.power_limit_w == 0 || c->length_ps == 0) return 0;
  int64_t limit_mw = m->gpu.power_limit_w * 1000, end_ps = from_ps + POWER_AHEAD_PS;
  bool slides = POWER_FAST_PS < c->length_ps;
  int64_t end_nj = slides ? until_nj(c, EDGE_END, to_ps + POWER_AHEAD_PS) : 0;
  int64_t fast_mw = window_mw(c, m, EDGE_FAST, end_ps - POWER_FAST_PS, end_nj, POWER_FAST_PS);
  int64_t slow_mw = window_mw(c, m, EDGE_SLOW, end_ps - POWER_SLOW_PS, end_nj, POWER_SLOW_PS);
  if (FAST_COUNTS * fast_mw + slow_mw <= (FAST_COUNTS + 1) * limit_mw) return 0;
  int64_t sum_ppm = FAST_COUNTS * excess_ppm(fast_mw, limit_mw) + excess_ppm(slow_mw, limit_mw);
  return max_i64(0, sum_ppm / (FAST_COUNTS + 1));
}

int64_t power_curve_excess_ppm(power_curve *c, const machine *m, int64_t at_ps)
{
  return power_curve_most_ppm(c, m, at_ps, at_ps);
}

void power_curve_free(power_curve *c)
{
  for (int s = 0; s < STREAM_HOST; s++)
    ARRAY_FREE(&c->streams[s]);
}
