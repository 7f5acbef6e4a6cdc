/*
 * Lowering a chunk's graph to its program, by what each file does:
 *
 *   lower.c            a chunk, from its tables to its two programs
 *   lower_frames.c     until when Python frames refer to what
 *   lower_saving.c     what autograd packs, unpacks and releases
 *   lower_forward.c    items in order
 *   lower_backward.c   items in reverse
 *   lower_gradients.c  where gradients are added
 *   lower_regions.c    what is recomputed
 *   lower_places.c     places and rows, also for emit.c and parts.c (lower.h)
 */
#ifndef OFFSIM_SIM_COMPILE_LOWERING_H
#define OFFSIM_SIM_COMPILE_LOWERING_H

#include "sim/compile/lower.h"

#define NEVER UINT32_MAX /* later than any item */

/* The emitter, and what only these files need. */
typedef struct lowering {
  emitter e;
  uint32_t *first_ending; /* by item: the first storage whose frame reference ends there, 0 =
                           * none */
  uint32_t *next_ending;  /* by storage: the next one that ends at the same item */
  uint32_t *region_begin, *region_end; /* by region: items */
  region_id *discarded_by;             /* by storage: the DISCARD region whose output it is */
  place_id *recomputed; /* [region x REGION_OUTPUTS] places of a DISCARD region's outputs, from the
                         * recomputation on */
  uint32_t *cached_entry; /* by tensor that a CHECKPOINT region keeps: its entry, NEVER until it has
                           * one; else 0 */
  uint32_t packs_only;    /* item with which a recomputation stops, 0 = none */
  /* non-reentrant CHECKPOINT region that keeps its inputs during its backward, */
  region_id lets_go;
  uint32_t lets_go_at;          /* ... up to this item */
  bool packs_parameters;        /* the hooks of packing see parameters too */
  bool gathers_parameters;      /* parameters are gathered and freed while autograd has saved
                                 * them */
  bool moves_gathered;          /* ... and the policy may copy them while they are gathered */
  bool layer_hooks, node_hooks; /* the policy has such hooks */
  bool groups_recomputed;       /* markers of groups are active in checkpoints, too */
  place_id *held_by;            /* by node: the place by which the node keeps graph_node.held */
  uint32_t begun_layer;         /* item of the layer whose backward the policy has been notified of,
                                 * 0 = none */
  uint32_t *group_row; /* by group of the graph: the program's newest group; 0: none, its calls save
                        * nothing */
} lowering;

/*
 * Which run of an item this is.
 *   NOT_SAVING   inside a region that will be recomputed
 *   RECOMPUTING  again, in backward
 * Unless groups_recomputed, only SAVING has markers of groups. With it each run of a group is a group of the
 * program: NOT_SAVING one without entries.
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
/* Saves an operator's tensors, before and after it runs. Bit i of `early`: saved[i] is announced
 * before. */
void lower_save_early(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early);
void lower_save_late(lowering *l, const graph_node *n, uint32_t first_entry, uint16_t early);
/* Backward: unpacks them to the device; autograd releases them; notifies the policy. */
void lower_unpack(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry);
void lower_release(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry);
void lower_tell_used(lowering *l, const tensor_id *tensors, int limit, uint32_t first_entry);

/* Regions, forward. */
void lower_save_inputs(lowering *l, region_id id);
void lower_empty_outputs(lowering *l, region_id id);
/* Backward of a CHECKPOINT region, from its recomputation on; and the end of an item's backward. */
void lower_checkpoint_backward(lowering *l, region_id id);
void lower_checkpoint_passed(lowering *l, uint32_t item);
/* ... recomputes a DISCARD region. */
void lower_recompute_discarded(lowering *l, region_id id);
/* The function keeps what it has recomputed, and its inputs, until autograd has passed the region. */
void lower_discarded_backward_end(lowering *l, region_id id);

#endif
