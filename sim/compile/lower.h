/*
 * The state of lowering one chunk: shared by lower.c (order and lifetimes) and emit.c (what operators
 * say through sim/model/emitter.h).
 */
#ifndef OFFSIM_SIM_COMPILE_LOWER_H
#define OFFSIM_SIM_COMPILE_LOWER_H

#include "sim/compile/program.h"
#include "sim/model/emitter.h"

typedef struct pending_gradient {
  tensor_id tensor; /* whose gradient */
  place_id place;
} pending_gradient;

typedef struct place_list { place_id *items; uint32_t count, capacity; } place_list;
typedef struct pending_list { pending_gradient *items; uint32_t count, capacity; } pending_list;

struct emitter {
  const settings *settings;
  const graph *graph;
  plan *plan;
  chunk_program *program;
  instruction_array *out; /* program->forward or ->backward */

  /* By tensor. */
  place_id *where;    /* owners of storage: the place that a reader finds it in */
  uint32_t *last_use; /* owners of storage: item after which the frame's reference ends */
  place_id *gradient; /* of backward, while it is under way */
  uint32_t *tensor_row; /* index into plan.tensors + 1, 0 = not there yet */
  uint32_t *parameter_row; /* index into program.parameters + 1, 0 = not there yet */

  uint32_t *site_row;   /* by graph site: index into plan.sites */
  uint32_t *node_entry; /* by node: its first entry; the others follow */
  uint32_t *region_entry; /* by region: the entry of its first input */

  bool *dropped; /* by place: its DROP is emitted */
  uint32_t dropped_capacity;

  group_id active_group; /* whose hooks are active */
  region_id refilling;   /* DISCARD region that is being recomputed */

  /* While one operator emits. */
  const graph_node *node;
  uint32_t node_first_entry;
  place_list temporaries;
  pending_list gradients;           /* for inputs */
  pending_list parameter_gradients; /* for parameters, not fused */
};

place_id lower_place(emitter *e, int64_t bytes, uint32_t tensor_row, buffer_class class);
void lower_instruction(emitter *e, instruction_kind kind, uint32_t a, uint32_t b);
void lower_drop(emitter *e, place_id p);
/* Nothing has dropped the place; parameters always are. */
bool lower_is_alive(emitter *e, place_id p);
uint32_t lower_tensor_row(emitter *e, tensor_id t);
/* Index into program.parameters. */
uint32_t lower_parameter(emitter *e, tensor_id parameter);
uint32_t lower_site_row(emitter *e, uint32_t graph_site);

/* The tensor under which the gradient of `t` is collected: views made by graph_view pass it on. */
tensor_id lower_gradient_key(const graph *g, tensor_id t);

#endif
