#include "sim/engine/costs.h"

#include "sim/base/units.h"
#include "sim/machine/call_time.h"
#include "sim/machine/roofline.h"
#include "sim/memory/pinned_pool.h"

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

/* ---- page-locking ------------------------------------------------------------------------------
 */

static bool is_first_iteration(const rank_plan *p)
{
  return p->ops.count > 0 && p->ops.items[0].kind == OP_MARK &&
         p->marks.items[p->ops.items[0].arg].kind == MARK_SETUP;
}

static uint32_t count_host_allocs(const rank_plan *p)
{
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->ops.count; i++)
    count += p->ops.items[i].kind == OP_HOST_ALLOC;
  return count;
}

static bool is_pinned(const rank_plan *p, const plan_op *o)
{
  return p->buffers.items[o->arg].purpose == CLASS_PINNED_HOST;
}

static pinned_buffer take(pinned_pool *pool, const plan_buffer *b)
{
  return b->host_key != 0 ? pinned_pool_take(pool, b->host_key, b->bytes)
                          : pinned_alloc(pool, b->bytes);
}

static void give(pinned_pool *pool, const plan_buffer *b, uint32_t handle)
{
  if (b->host_key != 0)
    pinned_pool_give(pool, handle);
  else
    pinned_free(pool, handle);
}

const int64_t *page_lock_costs(const rank_plan *p, const machine *m, arena *a)
{
  uint32_t allocs = is_first_iteration(p) ? count_host_allocs(p) : 0;
  if (allocs == 0) return NULL;
  int64_t *costs = ARENA_ARRAY(a, int64_t, allocs);
  uint32_t *handles = ARENA_ARRAY(a, uint32_t, p->buffers.count);
  pinned_pool *pool = pinned_pool_new(NULL, NULL);
  uint32_t next = 0;
  for (uint32_t i = 0; i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind == OP_HOST_ALLOC) {
      int64_t locked_bytes = 0;
      if (is_pinned(p, o)) {
        pinned_buffer taken = take(pool, &p->buffers.items[o->arg]);
        handles[o->arg] = taken.handle;
        locked_bytes = taken.locked_bytes;
      }
      costs[next++] = muldiv_i64(locked_bytes, m->issue.pinned_alloc_ns_per_gib * PS_PER_NS, GIB);
    } else if (o->kind == OP_HOST_FREE && is_pinned(p, o)) {
      give(pool, &p->buffers.items[o->arg], handles[o->arg]);
    }
  }
  pinned_pool_delete(pool);
  return costs;
}
