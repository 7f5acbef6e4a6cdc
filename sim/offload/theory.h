/*
 * What offloading must save, computed only from the schedule and the sizes of groups: no plan, no
 * engine. The simulated saving is compared with it (R = simulated / theoretical).
 *
 *   sum over the chunks in flight at the rank's first backward
 *     of the storages that die because their groups are on the host
 *
 * Groups that margin, delta, fraction and the rule of the last stage keep do not count. A storage
 * dies if each of its saved references left with a group, or if a group that left empties it. It
 * does not count if it would not be alive anyway (emptied and recomputed), or if the schedule keeps
 * it (the input that a chunk received).
 *
 * That is the moment when backward begins, in the loss. If the peak is elsewhere, the ratio is not
 * 1:
 *   - in the backward of the last layer (a small vocabulary): the tensors that its operators use
 *     are back, and its recomputed tensors are alive; an offloaded input of a checkpoint is freed
 *     after the recomputation, while one that stayed lives as long as its layer's backward
 *   - engines that prefetch while they keep the newest (hidden_states_reentrant: four inputs at
 *     once; selective_checkpointing: three layers' outputs) save less there
 *   - axolotl_disk saves more there: by then every file is written, and no tensor waits
 */
#ifndef OFFSIM_SIM_OFFLOAD_THEORY_H
#define OFFSIM_SIM_OFFLOAD_THEORY_H

#include "sim/offload/chunk_order.h"
#include "sim/offload/group_table.h"

typedef struct offload_theory {
  const rank_shape *rank;
  chunk_order order;
  group_table table;
  int64_t min_elements; /* of a tensor that a group empties */
  const void *found;    /* the result of the system's `prepare` */
} offload_theory;

/* A system's rules for groups and saved tensors; theory.c adds up. */
typedef struct theory_rules {
  /* Whether a group of the chunk at a position of the forward order is on the host at the first
   * backward; and which of its saved tensors are. */
  bool (*group_leaves)(const offload_theory *t, uint32_t position, uint32_t group);
  bool (*entry_leaves)(const offload_theory *t, const chunk_shape *c, uint32_t entry);
  /* Sets `found`; may be NULL. */
  void (*prepare)(offload_theory *t, arena *a);
  /* Device memory that the system itself uses; may be NULL. */
  int64_t (*costs)(const offload_theory *t, arena *a);
} theory_rules;

/* Rules of several systems: no group leaves; every group leaves; Megatron's order of chunks: the
 * first chunk to come back that has the name comes back at once, so its last group stays. */
bool theory_no_group(const offload_theory *t, uint32_t position, uint32_t group);
bool theory_every_group(const offload_theory *t, uint32_t position, uint32_t group);
bool theory_comes_back_first(const offload_theory *t, uint32_t position, uint32_t group);
/* No saved tensor leaves. */
bool theory_no_entry(const offload_theory *t, const chunk_shape *c, uint32_t entry);

/* Slots of the storages that the chunk saves are below it; 0 is none. */
uint32_t theory_slot_count(const chunk_shape *c);

/* What a system with these rules must save, in steady state. Working memory from `a`. */
int64_t theory_saving_bytes(const theory_rules *rules, const rank_shape *r, arena *a);

/* What layer_offloading must save beside it: the frozen weights of all layers are on the host while
 * the loss's backward runs, but where a saved view that stays on the device keeps a weight's block.
 */
int64_t theory_weight_bytes(const theory_rules *rules, const rank_shape *r, arena *a);

#endif
