/*
 * The ranks of an execution: the position of each in every group and pipeline.
 */
#ifndef OFFSIM_SIM_EXEC_LAYOUT_H
#define OFFSIM_SIM_EXEC_LAYOUT_H

#include "sim/base/arena.h"
#include "sim/exec/call.h"

typedef struct exec_members {
  const uint32_t *ranks; /* [count], global, in the group's order */
  uint32_t count;
} exec_members;

typedef struct exec_layout {
  uint32_t rank_count;
  const exec_rank *ranks; /* by global rank */
  const exec_members
      *groups[COMM_GROUPS];      /* [rank]: the members of the rank's group, including itself */
  const exec_members *pipelines; /* [rank]: the ranks of stages 0, 1, ... of the rank's pipeline */
} exec_layout;

/* What the rank sees of an operand. */
plan_view rank_view(const plan_view *v, const exec_rank *rank);

/* One rank for each stage of the plan; each is the only member of its groups. */
exec_layout exec_layout_of_stages(const plan *p, arena *a);

#endif
