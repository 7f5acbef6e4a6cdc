#include "sim/exec/layout.h"

#include <assert.h>

static exec_rank lonely_rank(uint32_t number)
{
  exec_rank r = { .global = number, .stage = number };
  for (int g = 0; g < COMM_GROUPS; g++)
    r.group[g].size = 1;
  return r;
}

exec_layout exec_layout_of_stages(const plan *p, arena *a)
{
  assert(p->rank_count > 0);
  uint32_t count = p->rank_count;
  exec_rank *ranks = ARENA_ARRAY(a, exec_rank, count);
  uint32_t *numbers = ARENA_ARRAY(a, uint32_t, count);
  exec_members *alone = ARENA_ARRAY(a, exec_members, count);
  exec_members *pipelines = ARENA_ARRAY(a, exec_members, count);
  for (uint32_t i = 0; i < count; i++) {
    numbers[i] = i;
    ranks[i] = lonely_rank(i);
    alone[i] = (exec_members){ &numbers[i], 1 };
    pipelines[i] = (exec_members){ numbers, count };
  }
  exec_layout l = { .rank_count = count, .ranks = ranks, .pipelines = pipelines };
  for (int g = 0; g < COMM_GROUPS; g++)
    l.groups[g] = alone;
  return l;
}

plan_view rank_view(const plan_view *v, const exec_rank *rank)
{
  exec_position of = rank->group[GROUP_TP];
  assert(v->turned == 0 || v->turned == of.size);
  return view_of_index(v, v->turned == 0 ? 0 : of.index);
}
