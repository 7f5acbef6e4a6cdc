#include "sim/predict/host_times.h"

#include "sim/base/units.h"
#include "sim/engine/host_walk.h"
#include "sim/machine/host_work.h"
#include "sim/predict/places.h"

static bool has_host_time(const plan_op *o)
{
  return o->kind == OP_MARK || o->kind == OP_ALLOC || o->kind == OP_FREE;
}

static const int64_t *costs_of(const prediction *p, uint32_t rank, arena *a)
{
  const plan *of = &p->steady.plan;
  const machine *own = machine_of(p->settings, p->machine, a);
  int64_t *call_ps = ARENA_ARRAY(a, int64_t, (size_t)of->calls.count + 1);
  int64_t *op_ps = ARENA_ARRAY(a, int64_t, (size_t)of->ranks[rank].ops.count + 1);
  host_costs costs = host_costs_of(own);
  for (uint32_t i = 0; i < of->calls.count; i++)
    call_ps[i] = host_call_ns(own, &of->calls.items[i]) * PS_PER_NS;
  host_walk_rank(&costs, of, rank, call_ps, op_ps);
  return op_ps;
}

/* Ops [first, end) begin at `from_ps`; the last of them is over at `to_ps`, if that is known. */
static void spread(host_times *t, const int64_t *cost_ps, uint32_t first, uint32_t end,
                   int64_t from_ps, const int64_t *to_ps)
{
  int64_t now_ps = from_ps, total_ps = 0;
  for (uint32_t i = first; i < end; i++)
    total_ps += cost_ps[i];
  if (to_ps != NULL) t->waited_ps[first] = max_i64(0, *to_ps - from_ps - total_ps);
  now_ps += t->waited_ps[first];
  for (uint32_t i = first; i < end; i++) {
    now_ps += cost_ps[i];
    t->issued_ps[i] = to_ps == NULL ? now_ps : min_i64(now_ps, *to_ps);
  }
}

host_times host_times_of(const prediction *p, uint32_t rank, arena *a)
{
  const rank_plan *r = &p->steady.plan.ranks[rank];
  const rank_timeline *times = &p->steady_timeline.ranks[rank];
  host_times t = { ARENA_ARRAY(a, int64_t, (size_t)r->ops.count + 1),
                   ARENA_ARRAY(a, int64_t, (size_t)r->ops.count + 1) };
  arena scratch = { 0 };
  const int64_t *cost_ps = costs_of(p, rank, &scratch);
  uint32_t first = 0;
  int64_t from_ps = 0;
  for (uint32_t i = 0; i < r->ops.count; i++) {
    if (!has_host_time(&r->ops.items[i])) continue;
    int64_t to_ps = op_start_ps(times, i);
    spread(&t, cost_ps, first, i + 1, from_ps, &to_ps);
    first = i + 1;
    from_ps = max_i64(from_ps, to_ps);
  }
  if (first < r->ops.count) spread(&t, cost_ps, first, r->ops.count, from_ps, NULL);
  arena_release(&scratch);
  return t;
}
