/*
 * Lowering a chunk's graph to its program, by what each file does:
 *
 *   lower.c            a chunk, from its tables to its two programs
 *   lower_frames.c     until when Python frames refer to what
 *   lower_saving.c     what autograd packs, unpacks and lets go
 *   lower_forward.c    items in order
 *   lower_backward.c   items in reverse
 *   lower_gradients.c  where gradients meet
 *   lower_regions.c    what is computed again
 *   lower_places.c     places and rows, also for emit.c and parts.c (lower.h)
 */
#ifndef OFFSIM_SIM_COMPILE_LOWERING_H
#define OFFSIM_SIM_COMPILE_LOWERING_H

#include "sim/compile/lower.h"

#define NEVER UINT32_MAX /* later than any item */

/* What only the order of lowering needs, beside the emitter. */
typedef struct lowering {
  emitter e;
  uint32_t *first_ending; /* by item: a storage whose frame reference ends there, 0 = none */
  uint32_t *next_ending;  /* by storage: another one */
  uint32_t *region_begin, *region_end; /* by region: items */
  region_id *discarded_by;             /* by storage: the DISCARD region whose output it is */
  uint32_t *cached_entry; /* by tensor that a CHECKPOINT region keeps: its entry, NEVER until it has
                           * one; else 0 */
  region_id recomputing;  /* region whose forward runs again, 0 = none */
  uint32_t packs_only;    /* item with which a recomputation stops, 0 = none */
  /* CHECKPOINT region, not reentrant, that holds its inputs during its backward, */
  region_id lets_go;
  uint32_t lets_go_at;          /* ... up to this item */
  bool packs_parameters;        /* the hooks of packing see parameters too */
  bool gathers_parameters;      /* they come and go under what is saved of them */
  bool layer_hooks, node_hooks; /* somebody listens */
  place_id *held_by;            /* by node: what it holds */
  uint32_t begun_layer;         /* item whose layer's backward has been told of, 0 = none */
  uint32_t *group_row; /* by group of the graph: that of the program, 0 = none: its calls save
                         * nothing */
} lowering;

/*
 * In which run of an item forward is.
 *   NOT_SAVING   inside a region that will be recomputed; its markers mean nothing
 *   RECOMPUTING  again, in backward: the markers of groups are not active
 */
typedef enum saving { NOT_SAVING, SAVING, RECOMPUTING } saving;

/* The items [from, to). */
void lower_forward(lowering *l, uint32_t from, uint32_t to, saving mode);
/* The items [from, to) in reverse; `hooks`: the markers of groups are active. */
void lower_backward(lowering *l, uint32_t from, uint32_t to, bool hooks);
/* The hooks of a decoder layer's module. */
void lower_layer_hook(lowering *l, instruction_kind kind, uint32_t layer, layer_pass pass);

/* Frames: finds where references end; drops those that end after `item`. */
void lower_find_endings(lowering *l);
void lower_drop_ending(lowering *l, uint32_t item, saving mode);

/* Saving. The entries of an operator or region that is about to run, in the order in which autograd
 * packs; `tensors` ends with 0 or after `limit`, here and below. */
uint32_t lower_entries(lowering *l, const tensor_id *tensors, int limit);
void lower_save(lowering *l, tensor_id t, uint32_t entry);
void lower_tell_ready(lowering *l, uint32_t entry);
/* An operator's, before and after it runs; early: bit i: saved[i] is announced before. */
void lower_save_early(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early);
void lower_save_late(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early);
/* Backward: they are needed on the device; autograd lets them go; the policy is told. */
void lower_unpack(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry);
void lower_release(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry);
void lower_tell_used(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry);

/* Regions, forward. */
void lower_save_inputs(lowering *l, region_id id);
void lower_empty_outputs(lowering *l, region_id id);
/* Backward: of a CHECKPOINT region, from its recomputation on; the item has been gone back through. */
void lower_checkpoint_backward(lowering *l, region_id id);
void lower_checkpoint_passed(lowering *l, uint32_t item);
/* ... a DISCARD region runs again. */
void lower_recompute_discarded(lowering *l, region_id id);

#endif
