/*
 * A policy decides what is kept, offloaded and reloaded, and when; it does so through the hooks
 * below, which sim/compile calls while it walks a rank's schedule in the host's program order, and
 * through the actions of actions.h, which emit the ops. A policy never sees a clock.
 */
#ifndef OFFSIM_SIM_OFFLOAD_POLICY_H
#define OFFSIM_SIM_OFFLOAD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/diag.h"
#include "sim/offload/shape.h"

typedef enum iteration_kind { ITERATION_WARMUP, ITERATION_STEADY } iteration_kind;

struct walk; /* the compile walk: see actions.h */

/* Which run of a layer: a checkpoint's backward runs its forward again. */
typedef enum layer_pass { PASS_FORWARD, PASS_RECOMPUTE, PASS_BACKWARD } layer_pass;

typedef struct offload_policy {
  /* The frozen weights of the decoder layers have twins on the host, for which they leave as soon
   * as the model is built (act_weights_*). An iteration ends, and a steady one begins, with the
   * first layer's on the device, brought in by STREAM_H2D. */
  bool weights_on_host;

  /* State for one rank and one iteration; everything from `a`; NULL: none is needed. Where the
   * released code would stop the run (mode as_released), a hook reports it through `d` and the
   * policy does nothing more than bring back what is on the host: the walk looks at `d` when it is
   * done. `d` must live as long as the state. */
  void *(*begin)(const rank_shape *r, iteration_kind iteration, arena *a, diag *d);

  /* Any of the following may be NULL. Before everything, while what outlives the iterations is
   * taken: in steady state the place for act_own_buffer. */
  void (*iteration_begin)(void *state, struct walk *w);

  /* The first iteration's last hook; in steady state the place for what was taken there
   * (act_own_memory), behind what the first iteration's optimizer has taken. */
  void (*lasting_memory)(void *state, struct walk *w);

  /* Forward, in program order. entry_ready: what writes the tensor has been issued; where the
   * framework says so before the operator that saves it, else when it is saved. */
  void (*forward_begin)(void *state, struct walk *w, instance_id i);
  void (*group_start)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*entry_ready)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*group_commit)(void *state, struct walk *w, instance_id i, uint32_t group);

  /* Backward: before the group's backward; an entry is needed now, wherever it is; it is needed and
   * has a copy on the host; after the group's backward. */
  void (*group_backward_commit)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*entry_needed)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*unpack)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*group_backward_start)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*backward_end)(void *state, struct walk *w, instance_id i);

  /* Backward: the operator that saved these entries has been issued, and autograd has let them
   * go. */
  void (*node_backward_end)(void *state, struct walk *w, instance_id i, uint32_t first_entry,
                            uint32_t count);

  /* Around each run of a decoder layer (0-based over the model): the hooks of its module. The
   * backward of a layer inside a checkpoint begins before its recomputation, whose end is not
   * reached; of a reentrant checkpoint, whose recomputation sets the hooks, behind it. */
  void (*layer_begin)(void *state, struct walk *w, instance_id i, int32_t layer, layer_pass pass);
  void (*layer_end)(void *state, struct walk *w, instance_id i, int32_t layer, layer_pass pass);

  /* What one line of the report says of defects met (as_released), NULL if none; may be NULL. */
  const char *(*defects)(void *state);
} offload_policy;

#endif
