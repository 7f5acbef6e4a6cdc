/*
 * The state that all files share while they lower a chunk: order and lifetimes (lowering.h), the
 * emitter that operators call (sim/graph/emitter.h, emit.c), and parts (parts.h).
 */
#ifndef OFFSIM_SIM_COMPILE_LOWER_H
#define OFFSIM_SIM_COMPILE_LOWER_H

#include "sim/compile/program.h"
#include "sim/graph/emitter.h"

typedef struct pending_gradient {
  tensor_id tensor; /* whose gradient it is */
  place_id place;
} pending_gradient;

/* The value of a ref of emitter.h. */
typedef struct emitted_ref {
  uint32_t operand; /* a place, or a parameter reference */
  plan_view view;   /* what a kernel sees of its buffer, */
  /* ... and what it sees if the buffer is a copy with only the tensor's elements, in order */
  plan_view alone;
} emitted_ref;
typedef struct emitted_ref_array {
  emitted_ref *items;
  uint32_t count, capacity;
} emitted_ref_array;

typedef struct place_list {
  place_id *items;
  uint32_t count, capacity;
} place_list;
typedef struct pending_list {
  pending_gradient *items;
  uint32_t count, capacity;
} pending_list;

/* The places by which a part keeps what it handed over. */
typedef struct part_references {
  place_id outputs[PART_OUTPUTS], detached[PART_DETACHED];
} part_references;

/* A product that waits for the end of its part (delay_wgrad_compute). */
enum { DELAYED_READS = 3 };
typedef struct delayed_gradient {
  kernel_shape shape;
  tensor_id weight;
  const graph_node *node;
  uint32_t first_read, reads; /* in delayed_reads */
} delayed_gradient;
typedef struct delayed_list {
  delayed_gradient *items;
  uint32_t count, capacity;
} delayed_list;

/* parts.c's own. */
typedef struct part_lowering {
  part_id current;       /* 0: none */
  part_references *held; /* by part */
  place_id *held_at;     /* by tensor that owns storage: the newest such reference */
  /* Until the backward of the part, of the layer, of the chunk is done. */
  place_list part_gradients, layer_gradients, layer_tensors, step_places;
  delayed_list delayed;
  place_list delayed_reads;
} part_lowering;

struct emitter {
  const settings *settings;
  const graph *graph;
  plan *plan;
  chunk_program *program;
  instruction_array *out; /* program->forward or ->backward */

  /* Indexed by tensor. */
  place_id *where;         /* owners of storage: the place that readers use */
  uint32_t *last_use;      /* owners of storage: item after which the frame's reference ends */
  place_id *gradient;      /* of backward, while it is under way */
  uint32_t *tensor_row;    /* index into plan.tensors + 1, 0 = not there yet */
  uint32_t *parameter_row; /* index into program.parameters + 1, 0 = not there yet */
  uint32_t *experts_row;   /* the same for the weights of experts, one by one */

  uint32_t *site_row;     /* by graph site: index into plan.sites */
  uint32_t *node_entry;   /* by node: its first entry; the others follow */
  uint32_t *region_entry; /* by region: the entry of its first input */

  bool *dropped; /* by place: its DROP is emitted */
  uint32_t dropped_capacity;

  /* of a reentrant checkpoint's output, while its backward runs; 0 = none */
  place_id held_gradient;
  plan_stream stream; /* replaces STREAM_COMPUTE in this part, also as the owner of memory */
  part_lowering parts;
  group_id active_group; /* whose hooks are active */
  bool accumulates;      /* accumulators have run since the current stream waited for them */
  region_id recomputing; /* region whose forward runs again, 0 = none */
  region_id refilling;   /* DISCARD region that is recomputed into its emptied storage */

  emitted_ref_array refs; /* [0] is none */

  /* While one operator emits. */
  const graph_node *node;
  uint32_t node_first_entry;
  place_list temporaries;
  pending_list gradients;           /* for inputs */
  pending_list parameter_gradients; /* for parameters, not fused */
};

/* A ref to a place or parameter as its readers see it; and the value of a ref. */
ref lower_ref(emitter *e, uint32_t operand);
uint32_t lower_operand(const emitter *e, ref r);
/* The place as the storage of `t`, which an operator writes. */
/* Where the tensor is: its storage's place, or where a recomputation's input was saved. */
place_id lower_place_of(const emitter *e, tensor_id t);
ref lower_output_ref(emitter *e, place_id p, tensor_id t);
/* The same buffer by one more place. */
ref lower_ref_again(emitter *e, ref r);
/* A tensor's view of its storage. */
plan_view lower_tensor_view(const graph *g, tensor_id t);

place_id lower_place(emitter *e, int64_t bytes, uint32_t tensor_row, buffer_class class);
void lower_instruction(emitter *e, instruction_kind kind, uint32_t a, uint32_t b);
/* Whether deterministic algorithms fill what the kernel or collective writes (fills.c). */
bool lower_fills(const emitter *e, op_kind kind, const plan_call *call);
/* Allocates a place that no kernel has written. */
void lower_alloc(emitter *e, place_id p);
/* The storage that a DISCARD region has emptied is allocated again. */
place_id lower_refill(emitter *e, tensor_id storage);
/* Ends a place's reference, once. Does nothing for no place and for parameters. */
void lower_drop(emitter *e, place_id p);
/* Drops the temporaries of the operator that has just run, and forgets its refs. */
void lower_drop_temporaries(emitter *e);
/* One more place that refers to the buffer of `from`. */
place_id lower_refer(emitter *e, place_id from);
/* The first of the places that refer to the gradient's buffer. */
place_id lower_root(const emitter *e, place_id p);
/* Whether the place has not been dropped; always true for parameters. */
bool lower_is_alive(const emitter *e, place_id p);
uint32_t lower_tensor_row(emitter *e, tensor_id t);
/* Index into program.parameters. */
uint32_t lower_parameter(emitter *e, tensor_id parameter);
/* The same of the first expert's weight of a grouped parameter on the host; those of the others follow. */
uint32_t lower_expert_weights(emitter *e, tensor_id weight, int64_t experts);
uint32_t lower_site_row(emitter *e, uint32_t graph_site);

/* The tensor under which the gradient of `t` is collected: views made by graph_view pass it on. */
tensor_id lower_gradient_key(const graph *g, tensor_id t);

/* Puts the input gradients of the operator that has just run where the next operators look for
 * them. */
void lower_deliver_gradients(emitter *e);
/* Adds its parameters' gradients to their totals, on the stream of the accumulators. */
void lower_accumulate(emitter *e);
/* ... on the current stream: a hook that is called without autograd. */
void lower_accumulate_at_once(emitter *e);
/* A call of backward() ends: the current stream waits for the accumulators (engine.cpp,
 * GraphTask::exec_post_processing). */
void lower_join_accumulators(emitter *e);
/* Whether any of the node's outputs has a gradient; they have been used. */
bool lower_any_gradient(const emitter *e, const graph_node *n);
void lower_consume_gradients(emitter *e, const graph_node *n);

#endif
