#include "sim/engine/power.h"

#include "sim/base/units.h"

enum { PPM = 1000000 };

/* Copies and the host thread stretch an iteration that computes less than they take. */
static int64_t full_clock_ps(const machine *m, const rank_load *load)
{
  int64_t d2h_ps = muldiv_i64(load->d2h_bytes, PS_PER_US, m->link.d2h_bytes_per_us);
  int64_t h2d_ps = muldiv_i64(load->h2d_bytes, PS_PER_US, m->link.h2d_bytes_per_us);
  int64_t issue_ns = m->issue.kernel_ns + m->issue.framework_ns;
  int64_t issue_ps = muldiv_i64(load->kernels, issue_ns * PS_PER_NS, 1);
  return max_i64(max_i64(load->compute_ps, issue_ps), max_i64(d2h_ps, h2d_ps));
}

/* 1 Mflop a picosecond is 10^18 a second, which at 1 fJ is 1000 W. */
static int64_t demand_mw(const machine *m, const rank_load *load, int64_t time_ps)
{
  int64_t products_mw = muldiv_i64(load->product_mflops, m->gpu.product_energy_fj * PPM, time_ps);
  return m->gpu.power_base_w * 1000 + products_mw;
}

int64_t power_slowdown_ppm(const machine *m, const rank_load *load)
{
  int64_t limit_mw = m->gpu.power_limit_w * 1000, time_ps = full_clock_ps(m, load);
  if (limit_mw == 0 || time_ps == 0) return 0;
  int64_t over_mw = demand_mw(m, load, time_ps) - limit_mw;
  if (over_mw <= 0) return 0;
  return muldiv_i64(over_mw, m->gpu.power_slowdown_permille * 1000, limit_mw);
}
