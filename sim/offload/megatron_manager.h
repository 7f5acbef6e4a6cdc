/* The state of Megatron-LM's offload manager (megatron.c). */
#ifndef OFFSIM_SIM_OFFLOAD_MEGATRON_MANAGER_H
#define OFFSIM_SIM_OFFLOAD_MEGATRON_MANAGER_H

#include <assert.h>

#include "sim/config/megatron_releases.h"
#include "sim/offload/actions.h"
#include "sim/offload/chunk_order.h"
#include "sim/offload/group_table.h"
#include "sim/offload/keep_rules.h"
#include "sim/offload/megatron_replay.h"

#define NO_POSITION UINT32_MAX

/* A list of groups of one chunk. No group is in it twice, so the chunk's group count is its
 * capacity. */
typedef struct group_list {
  uint32_t *groups;
  uint32_t count, room;
} group_list;

/* The states of the diagram in megatron.c, also for a group that stays or has only an entry on the
 * stack. */
typedef enum group_state {
  GROUP_NEW, /* its start marker has not passed */
  GROUP_PENDING,
  GROUP_STACKED,
  GROUP_COMING,
  GROUP_CONSUMED
} group_state;

/* The manager's state for one forward of one chunk (ChunkOffloadHandler). */
typedef struct handler {
  uint32_t started; /* the last group whose start marker has passed, 0 = none */
  group_list pending, stack, coming;
  uint32_t *name_count; /* by name: groups offloaded, only with a limit of copies in flight */
} handler;

typedef struct manager {
  const rank_shape *rank;
  iteration_kind iteration;
  bool has[MEGATRON_DEFECT_COUNT];
  bool all_step;          /* mode pr7575 */
  bool before;            /* the next reload begins before a group's backward: layer_input */
  bool marks_for_compute; /* what came back for a checkpoint of Transformer Engine */
  int64_t min_elements;
  int64_t max_inflight; /* UNSET: no limit */
  arena *memory;
  diag *diag;
  group_table table;
  chunk_order order;
  kept_groups kept;
  handler *handlers;          /* by position */
  const uint32_t **next_with; /* by name and place in order.backward: the next that has the name */
  bool *unmanaged;            /* by base + group: no marker, no hooks */
  bool *left;                 /* by base + group: its tensors were copied to the host */
  bool *awaited;              /* by base + group: the commit marker has passed in backward */
  uint8_t *states;            /* by base + group: group_state */
  event_id *offloaded, *reloaded; /* by base + group */
  event_id *inflight;             /* by base + room of the name: events of its copies in order */
  uint32_t backward_next;         /* place in order.backward */
  uint32_t backward_current;      /* position or NO_POSITION */
  uint32_t backward_known;        /* chunks of order.backward that the manager knows so far */
  uint32_t newest_forward;        /* position */
  bool past_last_handler;         /* as_released: the forward has run out of handlers */
  /* for manager_defects */
  int64_t unmanaged_groups, unordered_reloads, late_groups, early_entries, groups_behind_kept;
  graph_replay replay;
  bool *back;                   /* by base + group: back, or being reloaded, and not needed yet */
  uint32_t back_now, back_most; /* number of these now, at most */
} manager;

static inline const chunk_groups *groups_at(const manager *m, uint32_t position)
{
  assert(position < m->order.count);
  return &m->table.chunks[chunk_at(&m->order, position)];
}

static inline uint32_t group_row(const manager *m, uint32_t position, uint32_t group)
{
  assert(group <= groups_at(m, position)->count);
  return m->kept.base[position] + group;
}

/* A failed run continues without the manager: tensors on the host come back when they are
 * needed. */
static inline bool stopped(const manager *m)
{
  return !diag_ok(m->diag);
}

/* ---- where the released code stops, and its other defects: megatron_stops.c -------------------- */

/* Whether it gets through the beginning of an iteration; else the error is reported. */
bool manager_may_begin(const manager *m);
/* Each reports the error with which the released code stops at this group. */
void manager_stop_chunk_mismatch(const manager *m, instance_id i, uint32_t group);
void manager_stop_without_chunk(const manager *m, instance_id i, uint32_t group);
void manager_stop_in_recomputation(const manager *m, instance_id i, uint32_t group, uint32_t to);
void manager_stop_without_input(const manager *m, instance_id i, uint32_t group);
/* offload_policy.defects. */
const char *manager_defects(void *state);

/* ---- turns: megatron_turns.c ------------------------------------------------------------------- */

/* offload_policy.turn_visit and turns_alike. */
void manager_visit(void *state, turn_state *t);
uint32_t manager_turns_alike(const void *state, instance_id first, uint32_t chunks, uint32_t most);

#endif
