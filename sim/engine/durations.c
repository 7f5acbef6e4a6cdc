#include "sim/engine/durations.h"

#include "sim/machine/call_time.h"
#include "sim/machine/roofline.h"

const call_cost *call_costs(const plan *p, const machine *m, arena *a)
{
  call_cost *costs = ARENA_ARRAY(a, call_cost, p->calls.count);
  for (uint32_t i = 0; i < p->calls.count; i++) {
    const plan_call *c = &p->calls.items[i];
    call_time time = call_time_of(m, c);
    costs[i] = (call_cost){ time.ps, time.slowdown_permille,
                            c->is_collective ? 0 : call_product_mflops(c) };
  }
  return costs;
}

int64_t message_ps(const machine *m, const rank_place *places, const plan_message *message)
{
  bool same_host = places[message->from_rank].host == places[message->to_rank].host;
  return transfer_ps(m, message->bytes, same_host);
}
