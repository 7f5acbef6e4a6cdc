/*
 * A policy decides what is kept, offloaded and reloaded, and when. sim/compile calls its hooks
 * below while it walks a rank's schedule in the host's program order; the actions of actions.h emit
 * the policy's ops. A policy never sees a clock.
 */
#ifndef OFFSIM_SIM_OFFLOAD_POLICY_H
#define OFFSIM_SIM_OFFLOAD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"
#include "sim/offload/shape.h"
#include "sim/offload/turn_state.h"

typedef enum iteration_kind { ITERATION_WARMUP, ITERATION_STEADY } iteration_kind;

struct walk; /* the compile walk: see actions.h */

/* Which run of a layer it is: a checkpoint's backward recomputes its forward. */
typedef enum layer_pass { PASS_FORWARD, PASS_RECOMPUTE, PASS_BACKWARD } layer_pass;

typedef struct offload_policy {
  /* Under FSDP2, a parameter's copy may leave too: what autograd has saved of a gathered parameter
   * is on the device in entry_ready and entry_needed. Between them FSDP empties what stayed. */
  bool moves_gathered;

  /* The first iteration keeps nothing on the device, whatever activation_offload_fraction and
   * delta_offload_bytes_across_pp_ranks say. */
  bool first_keeps_nothing;

  /* Whether a group's hooks are called inside checkpoints of whole layers, too: in forward, where autograd
   * packs nothing, and again in the recomputation. NULL: never. */
  bool (*marks_recomputation)(const settings *s);

  /* Returns the state for one rank and one iteration, from `a`; NULL: none is needed. Where the
   * released code would stop the run (mode as_released), a hook reports it through `d`, and from
   * then on the policy only reloads what is on the host: the walk checks `d` at its end. `d` must
   * live as long as the state. */
  void *(*begin)(const rank_shape *r, iteration_kind iteration, arena *a, diag *d);

  /* Any of the following may be NULL. Called first, among the residents' allocations: in steady
   * state the place for act_own_buffer. */
  void (*iteration_begin)(void *state, struct walk *w);

  /* The first iteration's last hook, which may take memory (act_own_memory). In steady state it
   * is called after the residents from the first iteration's optimizer, and takes the same memory
   * as residents. */
  void (*lasting_memory)(void *state, struct walk *w);

  /* Forward, in program order. storage_begin: the storage (saved_entry.slot) is about to be allocated,
   * for the operator that makes it; also for storages that nothing saves, and in backward.
   * entry_ready: the writer of the tensor has been issued; called before the operator that saves it if
   * the framework announces the tensor there, else when it is saved. */
  void (*forward_begin)(void *state, struct walk *w, instance_id i);
  void (*group_start)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*storage_begin)(void *state, struct walk *w, instance_id i, uint32_t slot);
  void (*entry_ready)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*group_commit)(void *state, struct walk *w, instance_id i, uint32_t group);

  /* Backward. group_backward_commit: before the group's backward. entry_needed: an operator needs
   * the entry, wherever it is. unpack: the same, only if the entry has a copy on the host.
   * group_backward_start: after the group's backward. */
  void (*group_backward_commit)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*entry_needed)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*unpack)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*group_backward_start)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*backward_end)(void *state, struct walk *w, instance_id i);

  /* Backward: the operator that saved these entries has been issued, and autograd has released
   * them. */
  void (*node_backward_end)(void *state, struct walk *w, instance_id i, uint32_t first_entry,
                            uint32_t count);

  /* Around each run of a decoder layer (0-based over the model): the hooks of its module. The
   * backward of a layer inside a checkpoint begins before its recomputation, whose end is not
   * reached; in a reentrant checkpoint, whose recomputation sets the hooks, it begins after the
   * recomputation. */
  void (*layer_begin)(void *state, struct walk *w, instance_id i, int32_t layer, layer_pass pass);
  void (*layer_end)(void *state, struct walk *w, instance_id i, int32_t layer, layer_pass pass);

  /* Set both, or neither: without them no turn is copied (sim/compile/turns.h), unless the policy has no
   * state. turn_visit visits, between two hooks, all state that hooks may read and change during a turn.
   * turns_alike compares the state that they only read: it returns how many of up to `most` turns, of
   * `chunks` forwards each, read the same as the turn before; `first` is the first forward of the first
   * turn. */
  void (*turn_visit)(void *state, turn_state *t);
  uint32_t (*turns_alike)(const void *state, instance_id first, uint32_t chunks, uint32_t most);

  /* One line of the report about defects (as_released), NULL if none; may be NULL. */
  const char *(*defects)(void *state);
} offload_policy;

#endif
