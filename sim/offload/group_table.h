/*
 * The groups of a rank's chunks, in the form that policies use: names as small numbers, the bytes
 * of every group, and which tensors of a group move.
 */
#ifndef OFFSIM_SIM_OFFLOAD_GROUP_TABLE_H
#define OFFSIM_SIM_OFFLOAD_GROUP_TABLE_H

#include <assert.h>

#include "sim/offload/shape.h"

typedef uint32_t name_id; /* 1 ..; 0 means any name */

typedef struct chunk_groups {
  uint32_t count;       /* groups are 1 .. count, in the order of their start markers */
  const name_id *name;  /* by group */
  const int64_t *bytes; /* by group: bytes copied if the group is offloaded */
  uint32_t distinct_names;
  const uint32_t *last; /* by name: the last group of that name, 0 = none; [0]: the last group */
  const uint32_t *first_of_name; /* by name: number of groups with smaller names, the offset of the
                                  * name's list */
} chunk_groups;

typedef struct group_table {
  uint32_t name_count; /* including 0 */
  uint32_t name_room;
  const char **names;
  uint32_t chunk_count;
  chunk_groups *chunks;
} group_table;

group_table group_table_new(const rank_shape *r, arena *a);

/*
 * The rules for one saved tensor (fine_grained_activation_offload.py,
 * tensor_need_offloading_checker and ChunkOffloadHandler.offload).
 */

/* Whether the tensor leaves with its group. `min_elements` applies to the tensor, not to its
 * storage. */
static inline bool entry_leaves(const saved_entry *e, int64_t min_elements)
{
  return !e->parameter && !e->not_offloadable && e->elements >= min_elements;
}

/* A view that is not contiguous is copied as its whole storage if it covers at least half of it.
 * `gathers`: older versions gather every such view. */
static inline copy_form entry_copy_form(const saved_entry *e, bool gathers)
{
  assert(e->element_bytes > 0);
  if (e->contiguous) return COPY_VIEW;
  if (!gathers && e->storage_bytes % e->element_bytes == 0 &&
      e->bytes >= e->storage_bytes - e->bytes)
    return COPY_STORAGE;
  return COPY_GATHERED;
}

static inline int64_t entry_copied_bytes(const saved_entry *e, bool gathers)
{
  return entry_copy_form(e, gathers) == COPY_STORAGE ? e->storage_bytes : e->bytes;
}

#endif
