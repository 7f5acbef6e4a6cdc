#include "sim/engine/slowdown.h"

#include "sim/machine/call_time.h"
#include "sim/base/units.h"

enum { DIRECTIONS = 2 };

/* What a copy gets when every rank of the host copies both ways. */
static int64_t crowded_rate(const plan *p, const machine *m, const rank_place *places, uint32_t rank,
                            link_direction direction)
{
  host_flow flows[LINK_SHARE_FLOWS];
  uint32_t count = 0, own = 0;
  for (uint32_t r = 0; r < p->rank_count && count + DIRECTIONS <= LINK_SHARE_FLOWS; r++) {
    if (places[r].host != places[rank].host)
      continue;
    for (uint32_t d = 0; d < DIRECTIONS; d++) {
      if (r == rank && d == (uint32_t)direction)
        own = count;
      flows[count++] = (host_flow){ .gpu = places[r].gpu,
                                    .group = places[r].gpu / (uint32_t)m->host.gpus_per_group,
                                    .direction = (link_direction)d,
                                    .multiplicity = places[r].multiplicity };
    }
  }
  link_share_host(m, flows, count);
  return max_i64(1, flows[own].rate_bytes_per_us);
}

/* Permille of the compute time in which copies of `bytes` run. */
static int64_t busy_permille(const rank_load *load, int64_t bytes, int64_t rate)
{
  if (load->compute_ps == 0) return 0;
  int64_t copy_ps = muldiv_i64(bytes, PS_PER_US, rate);
  return copy_ps >= load->compute_ps ? 1000 : muldiv_i64(copy_ps, 1000, load->compute_ps);
}

const int64_t *slowed_durations(const plan *p, const machine *m, const rank_place *places, uint32_t rank,
                                const rank_load *load, const call_cost *costs, arena *a)
{
  int64_t d2h = busy_permille(load, load->d2h_bytes, crowded_rate(p, m, places, rank, LINK_D2H));
  int64_t h2d = busy_permille(load, load->h2d_bytes, crowded_rate(p, m, places, rank, LINK_H2D));
  int64_t memory_ppm =
      d2h * m->link.memory_slowdown_d2h_permille + h2d * m->link.memory_slowdown_h2d_permille;
  int64_t product_ppm =
      d2h * m->link.gemm_slowdown_d2h_permille + h2d * m->link.gemm_slowdown_h2d_permille;
  int64_t *slowed = ARENA_ARRAY(a, int64_t, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++) {
    const plan_call *c = &p->calls.items[i];
    int64_t ppm = c->is_collective ? 0 : call_is_memory_bound(c) ? memory_ppm : product_ppm;
    slowed[i] = costs[i].ps + muldiv_i64(costs[i].ps, ppm, 1000000);
  }
  return slowed;
}
