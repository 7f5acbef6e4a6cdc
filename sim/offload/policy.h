/*
 * Offload systems: one file each, one row each in the table of sim/config/offload_systems.h.
 *
 * A policy decides what is kept, offloaded and reloaded, and when; it does so through the hooks below,
 * which sim/compile calls while it walks a rank's schedule in the host's program order, and through the
 * actions of actions.h, which emit the ops. A policy never sees a clock.
 *
 * What is saved, and by whom, comes as `chunk_program`'s groups and entries: a group is one call of one
 * module in one layer; an entry is one saved slot of autograd inside it (a tensor saved twice has two
 * entries). An instance is one chunk for one micro-batch, from its forward to the end of its backward.
 */
#ifndef OFFSIM_SIM_OFFLOAD_POLICY_H
#define OFFSIM_SIM_OFFLOAD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/config/settings.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

/* One saved tensor, as the hooks see it. */
typedef struct saved_entry {
  int64_t elements;      /* of the tensor or view */
  int64_t bytes;         /* of the tensor or view */
  int64_t storage_bytes; /* of the storage it lies in */
  uint32_t group;        /* group whose hooks were active, 0 = none */
  uint32_t slot;         /* the chunk program's storage slot */
  uint32_t tensor;       /* index into plan.tensors: name, shape, dtype */
  uint8_t element_bytes;
  bool contiguous;
  bool parameter;
  bool not_offloadable;
  bool discarded;        /* the storage is emptied in forward and recomputed (output-discarding checkpoint) */
  bool marked;           /* Transformer Engine's modules mark the tensor for its first engine */
  bool base_leaves;      /* ... and, for its second, that a view's storage may leave in its place */
  bool of_parameter;     /* a view of a parameter that is none itself: a linear's transposed weight */
  bool checkpoint_input; /* what a checkpoint keeps to run its region again */
  bool cached;           /* ... what a selective one keeps so that an operator need not run again */
  bool callers;          /* the training loop refers to it until the micro-batch's backward is done */
  int64_t offset_elements; /* where the tensor begins in its storage */
  uint32_t view; /* how it lies in its storage: a row of plan.views; 0: it is all of it, in order */
  uint32_t operator_first; /* the first entry of the operator or checkpoint that saved this one too */
} saved_entry;

typedef struct saved_group {
  const char *name; /* "core_attn" */
  int32_t layer;
  uint32_t first_entry, entry_count; /* in the chunk's entries, in the order of saving */
  uint32_t released[4]; /* slots emptied at commit, 0 ends */
  int64_t released_elements[4]; /* of the tensors that name them, for the size filter */
} saved_group;

/* What a policy may know of a chunk before it runs. groups[0] and entries[0] are none. Groups stand in
 * the order of their start markers. */
typedef struct chunk_shape {
  const saved_group *groups;
  uint32_t group_count; /* including groups[0] */
  const saved_entry *entries;
  uint32_t entry_count;
  uint32_t input_slot; /* what the schedule received and holds until backward; 0 on the first stage */
} chunk_shape;

/* What a policy may know of its rank. */
typedef struct rank_shape {
  const settings *settings;
  uint32_t pp_rank;
  uint32_t chunk_count;
  const chunk_shape *chunks; /* [chunk_count] */
  const schedule *schedule;
} rank_shape;

typedef enum iteration_kind { ITERATION_WARMUP, ITERATION_STEADY } iteration_kind;

/* An instance: handle of a chunk in flight; dense numbers 0 .. (micro-batches x chunks - 1):
 * microbatch * chunk_count + chunk. */
typedef uint32_t instance_id;

struct walk; /* the compile walk: see actions.h */

/* Which run of a layer: a checkpoint's backward runs its forward again. */
typedef enum layer_pass { PASS_FORWARD, PASS_RECOMPUTE, PASS_BACKWARD } layer_pass;

typedef struct offload_policy {
  /* The frozen weights of the decoder layers have twins on the host, for which they leave as soon as the
   * model is built (act_weights_*). An iteration ends, and a steady one begins, with the first layer's on
   * the device, brought in by STREAM_H2D. */
  bool weights_on_host;

  /* State for one rank and one iteration; everything from `a`; NULL: none is needed. Where the released
   * code would stop the run (mode as_released), a hook reports it through `d` and the policy does nothing
   * more than bring back what is on the host: the walk looks at `d` when it is done. `d` must live as long
   * as the state. */
  void *(*begin)(const rank_shape *r, iteration_kind iteration, arena *a, diag *d);

  /* Any of the following may be NULL. Before everything, while what outlives the iterations is taken:
   * in steady state the place for act_own_buffer. */
  void (*iteration_begin)(void *state, struct walk *w);

  /* The first iteration's last hook; in steady state the place for what was taken there (act_own_memory),
   * behind what the first iteration's optimizer has taken. */
  void (*lasting_memory)(void *state, struct walk *w);

  /* Forward, in program order. entry_ready: what writes the tensor has been issued; where the framework
   * says so before the operator that saves it, else when it is saved. */
  void (*forward_begin)(void *state, struct walk *w, instance_id i);
  void (*group_start)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*entry_ready)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*group_commit)(void *state, struct walk *w, instance_id i, uint32_t group);

  /* Backward: before the group's backward; an entry that has a copy on the host is needed now; after it. */
  void (*group_backward_commit)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*unpack)(void *state, struct walk *w, instance_id i, uint32_t entry);
  void (*group_backward_start)(void *state, struct walk *w, instance_id i, uint32_t group);
  void (*backward_end)(void *state, struct walk *w, instance_id i);

  /* Backward: the operator that saved these entries has been issued, and autograd has let them go. */
  void (*node_backward_end)(void *state, struct walk *w, instance_id i, uint32_t first_entry,
                            uint32_t count);

  /* Around each run of a decoder layer (0-based over the model): the hooks of its module. The backward of a
   * layer inside a checkpoint begins before its recomputation, whose end is not reached; of a reentrant
   * checkpoint, whose recomputation sets the hooks, behind it. */
  void (*layer_begin)(void *state, struct walk *w, instance_id i, int32_t layer, layer_pass pass);
  void (*layer_end)(void *state, struct walk *w, instance_id i, int32_t layer, layer_pass pass);

  /* What one line of the report says of defects met (as_released), NULL if none; may be NULL. */
  const char *(*defects)(void *state);
} offload_policy;

/* The policy of offload.system. */
const offload_policy *offload_policy_of(system_choice system);

#endif
