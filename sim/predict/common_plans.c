#include "sim/predict/common_plans.h"

#include <assert.h>
#include <string.h>

#include "sim/base/memory.h"
#include "sim/verify/verify.h"

settings common_settings(const settings *s)
{
  settings common = *s;
  common.software.expandable_segments = false;
  return common;
}

bool common_plans_compile(common_plans *c, const settings *s, iteration_kind kind, uint32_t threads,
                          arena *a, diag *d)
{
  assert((unsigned)kind < ITERATION_KINDS);
  return c->compiled[kind].plan.rank_count > 0 ||
         compile_in_parallel(&c->compiled[kind], s, kind, threads, a, d);
}

bool common_plans_are_safe(common_plans *c, const settings *s, arena *a, diag *d)
{
  const plan *first = &c->compiled[ITERATION_WARMUP].plan;
  const plan *steady = &c->compiled[ITERATION_STEADY].plan;
  return common_plans_compile(c, s, ITERATION_WARMUP, 1, a, d) && plan_is_safe(first, NULL) &&
         common_plans_compile(c, s, ITERATION_STEADY, 1, a, d) && plan_is_safe(steady, first);
}

void common_plans_take_known(common_plans *c, common_plans *from)
{
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    assert(c->times[kind].rank_count == 0 && "nothing is known yet");
    if (!plan_is_same(&c->compiled[kind].plan, &from->compiled[kind].plan)) continue;
    c->times[kind] = from->times[kind];
    from->times[kind] = (timeline){ 0 };
    if (kind != ITERATION_WARMUP) continue;
    assert(c->first[0] == NULL && c->first[1] == NULL);
    memcpy(c->first, from->first, sizeof c->first);
    memset(from->first, 0, sizeof from->first);
  }
}

void common_plans_keep_first(common_plans *c)
{
  uint32_t ranks = c->compiled[ITERATION_WARMUP].plan.rank_count;
  assert(ranks > 0);
  for (int mode = 0; mode < 2; mode++)
    if (c->first[mode] == NULL) c->first[mode] = memory_zeroed(ranks, sizeof **c->first);
}

first_replay *common_plans_first(common_plans *c, const settings *s, int64_t capacity_bytes,
                                 uint32_t rank)
{
  first_replay *first = c->first[s->software.expandable_segments];
  assert(rank < c->compiled[ITERATION_WARMUP].plan.rank_count);
  if (first == NULL) return NULL;
  if (first[rank].on_clock == NULL) first[rank].capacity_bytes = capacity_bytes;
  return first[rank].capacity_bytes == capacity_bytes ? &first[rank] : NULL;
}

static void first_release(first_replay *first, uint32_t ranks)
{
  for (uint32_t i = 0; first != NULL && i < ranks; i++) {
    first_replay *f = &first[i];
    if (f->on_clock != NULL) replay_release(f->on_clock);
    if (f->in_order != NULL) replay_release(f->in_order);
    arena_release(&f->memory);
  }
  memory_return(first);
}

void common_plans_release(common_plans *c)
{
  for (int i = 0; i < 2; i++)
    first_release(c->first[i], c->compiled[ITERATION_WARMUP].plan.rank_count);
  for (int kind = 0; kind < ITERATION_KINDS; kind++) {
    timeline_release(&c->times[kind]);
    compilation_release(&c->compiled[kind]);
  }
  *c = (common_plans){ 0 };
}
