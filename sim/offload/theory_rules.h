/*
 * What the offload systems' rules say of groups and saved tensors, one row each: theory.c adds up.
 */
#ifndef OFFSIM_SIM_OFFLOAD_THEORY_RULES_H
#define OFFSIM_SIM_OFFLOAD_THEORY_RULES_H

#include "sim/offload/chunk_order.h"
#include "sim/offload/group_table.h"
#include "sim/offload/keep_rules.h"

typedef struct offload_theory {
  const rank_shape *rank;
  chunk_order order;
  group_table table;
  int64_t min_elements; /* of a tensor that a group empties */
  kept_groups kept;     /* megatron */
  const bool *copied;   /* trl: by entry of the one chunk */
} offload_theory;

typedef struct theory_rules {
  /* Whether a group of the chunk at a position of the forward order is on the host at the first
   * backward; and of what it has saved, which. */
  bool (*group_leaves)(const offload_theory *t, uint32_t position, uint32_t group);
  bool (*entry_leaves)(const offload_theory *t, const chunk_shape *c, uint32_t entry);
  /* What the rules look up; may be NULL. */
  void (*prepare)(offload_theory *t, arena *a);
  /* Device memory that the system takes for itself; may be NULL. */
  int64_t (*costs)(const offload_theory *t, arena *a);
} theory_rules;

/* Without functions: nothing that is saved leaves. */
const theory_rules *theory_rules_of(system_choice system);

#endif
