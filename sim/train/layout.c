#include "sim/train/layout.h"

#include <assert.h>

/* A group: its size, and the stride between its members within a stage. */
typedef struct group_shape {
  uint32_t size, stride;
} group_shape;

static void shapes_of(const settings *s, group_shape shapes[COMM_GROUPS])
{
  const struct parallel_settings *p = &s->parallel;
  uint32_t tp = (uint32_t)p->tensor_model_parallel_size;
  uint32_t cp = (uint32_t)p->context_parallel_size;
  uint32_t ep = (uint32_t)p->expert_model_parallel_size;
  uint32_t etp = (uint32_t)p->expert_tensor_parallel_size;
  uint32_t dp = (uint32_t)s->derived.data_parallel_size;
  uint32_t edp = (uint32_t)s->derived.expert_data_parallel_size;
  for (int g = 0; g < COMM_GROUPS; g++)
    shapes[g] = (group_shape){ 1, 1 };
  shapes[GROUP_TP] = (group_shape){ tp, 1 };
  shapes[GROUP_CP] = (group_shape){ cp, tp };
  shapes[GROUP_TP_CP] = (group_shape){ tp * cp, 1 };
  shapes[GROUP_TP_DP] = (group_shape){ tp * cp * dp, 1 };
  shapes[GROUP_DP] = (group_shape){ dp * cp, tp };
  shapes[GROUP_ETP] = (group_shape){ etp, 1 };
  shapes[GROUP_EP] = (group_shape){ ep, etp };
  shapes[GROUP_TP_EP] = (group_shape){ etp * ep, 1 };
  shapes[GROUP_EDP] = (group_shape){ edp, etp * ep };
  shapes[GROUP_WORLD] = (group_shape){ (uint32_t)p->world_size, 1 };
}

/* The first and the last stage of a pipeline; every other stage is alone. */
static group_shape embedding_group(const settings *s, uint32_t of_stage, uint32_t stage,
                                   uint32_t *index)
{
  uint32_t last = (uint32_t)s->parallel.pipeline_model_parallel_size - 1;
  bool member = last > 0 && (stage == 0 || stage == last);
  *index = member && stage == last;
  return (group_shape){ member ? 2 : 1, last * of_stage };
}

static exec_members members_of(const group_shape *g, uint32_t rank, uint32_t index, arena *a)
{
  assert(index < g->size && rank >= index * g->stride);
  uint32_t *ranks = ARENA_ARRAY(a, uint32_t, g->size);
  for (uint32_t i = 0; i < g->size; i++)
    ranks[i] = rank - index * g->stride + i * g->stride;
  return (exec_members){ ranks, g->size };
}

exec_layout layout_of_settings(const settings *s, arena *a)
{
  uint32_t world = (uint32_t)s->parallel.world_size;
  uint32_t stages = (uint32_t)s->parallel.pipeline_model_parallel_size;
  uint32_t of_stage = world / stages;
  assert(stages > 0 && world % stages == 0);
  group_shape shapes[COMM_GROUPS];
  shapes_of(s, shapes);
  exec_rank *ranks = ARENA_ARRAY(a, exec_rank, world);
  exec_members *pipelines = ARENA_ARRAY(a, exec_members, world);
  exec_members *groups[COMM_GROUPS];
  for (int g = 0; g < COMM_GROUPS; g++)
    groups[g] = ARENA_ARRAY(a, exec_members, world);
  for (uint32_t r = 0; r < world; r++) {
    ranks[r] = (exec_rank){ .global = r, .stage = r / of_stage };
    for (int g = 0; g < COMM_GROUPS; g++) {
      group_shape shape = shapes[g];
      assert(shape.size > 0 && shape.stride > 0);
      uint32_t index = r % of_stage / shape.stride % shape.size;
      if (g == GROUP_WORLD) index = r;
      if (g == GROUP_EMBD) shape = embedding_group(s, of_stage, r / of_stage, &index);
      ranks[r].group[g] = (exec_position){ index, shape.size };
      groups[g][r] = members_of(&shape, r, index, a);
    }
    pipelines[r] = members_of(&(group_shape){ stages, of_stage }, r, r / of_stage, a);
  }
  exec_layout layout = { .rank_count = world, .ranks = ranks, .pipelines = pipelines };
  for (int g = 0; g < COMM_GROUPS; g++)
    layout.groups[g] = groups[g];
  return layout;
}

uint32_t layout_replica(const settings *s, const exec_rank *rank)
{
  assert(s->parallel.context_parallel_size > 0);
  return rank->group[GROUP_DP].index / (uint32_t)s->parallel.context_parallel_size;
}
