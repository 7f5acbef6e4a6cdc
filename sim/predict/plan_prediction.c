#include "sim/predict/plan_prediction.h"

#include <assert.h>

#include "sim/base/units.h"
static const rank_place *places_of(const plan *of, const machine *m, arena *a)
{
  rank_place *places = ARENA_ARRAY(a, rank_place, of->rank_count);
  uint32_t gpus = (uint32_t)m->host.gpus;
  uint32_t segment = (uint32_t)machine_segment_gpus(m, of->rank_count);
  assert(gpus > 0 && segment > 0);
  for (uint32_t r = 0; r < of->rank_count; r++)
    places[r] =
        (rank_place){ .domain = r / segment, .host = r / gpus, .gpu = r % gpus, .multiplicity = 1 };
  return places;
}

static int64_t driver_bytes(const rank_plan *r)
{
  int64_t sum = 0;
  for (uint32_t i = 0; i < r->buffers.count; i++)
    if (r->buffers.items[i].purpose == CLASS_DRIVER) sum += r->buffers.items[i].bytes;
  return sum;
}

static replay_result replayed(int64_t capacity_bytes, const rank_plan *r, const rank_timeline *t,
                              arena *a)
{
  replay *one = replay_new(&(replay_options){ .capacity_bytes = capacity_bytes }, a);
  replay_result result = replay_iteration(one, r, t);
  result.refused = NULL;
  replay_release(one);
  return result;
}

/* Where memory runs out, allocated bytes are those without a limit, where no freed block waits. */
static replay_result memory_of(const machine *m, const rank_plan *r, const rank_timeline *t,
                               arena *a)
{
  int64_t left = machine_usable_bytes(m) - driver_bytes(r);
  replay_result memory = replayed(max_i64(0, left), r, t, a);
  if (memory.out_of_memory)
    memory.allocated_peak_bytes =
        replayed(ALLOCATOR_UNLIMITED_BYTES, r, NULL, a).allocated_peak_bytes;
  return memory;
}

bool plan_predict(plan_prediction *p, const plan *of, const machine *m, arena *a, diag *d)
{
  *p = (plan_prediction){ .machine = m, .rank_count = of->rank_count };
  p->memory = ARENA_ARRAY(a, replay_result, of->rank_count);
  if (!simulate(&p->times, of, m, places_of(of, m, a), d)) return false;
  for (uint32_t r = 0; r < of->rank_count; r++) {
    p->memory[r] = memory_of(m, &of->ranks[r], &p->times.ranks[r], a);
    assert(p->times.ranks[r].end_of_rank_ps <= p->times.step_ps);
  }
  return true;
}

void plan_prediction_release(plan_prediction *p)
{
  timeline_release(&p->times);
}
