#include "sim/engine/durations.h"

#include "sim/machine/call_time.h"
#include "sim/machine/roofline.h"

static call_cost cost_of(const machine *m, const plan_call *c)
{
  call_time time = call_time_of(m, c);
  call_cost cost = { .ps = time.ps,
                     .power_permille = time.slowdown_permille,
                     .energy_nj = call_energy_nj(m, c) };
  if (c->is_collective) return cost;
  bool memory = call_is_memory_bound(c);
  cost.d2h_permille =
      memory ? m->link.memory_slowdown_d2h_permille : m->link.gemm_slowdown_d2h_permille;
  cost.h2d_permille =
      memory ? m->link.memory_slowdown_h2d_permille : m->link.gemm_slowdown_h2d_permille;
  return cost;
}

const call_cost *call_costs(const plan *p, const machine *m, arena *a)
{
  call_cost *costs = ARENA_ARRAY(a, call_cost, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++)
    costs[i] = cost_of(m, &p->calls.items[i]);
  return costs;
}

int64_t message_ps(const machine *m, const rank_place *places, const plan_message *message)
{
  bool same_host = places[message->from_rank].host == places[message->to_rank].host;
  return transfer_ps(m, message->bytes, same_host);
}
