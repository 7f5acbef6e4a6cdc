/*
 * A chunk's program: its graph with PyTorch's lifetimes applied, one list of instructions for
 * forward and one for backward, the same for every micro-batch.
 *
 * A program works on places: numbered references to device buffers, such as a variable of a Python
 * frame, a slot of autograd or a gradient in flight. A buffer lives as long as a place refers to
 * it. The compile walk (walk.h) runs a program once for each micro-batch with a fresh array of
 * places and emits the ops.
 */
#ifndef OFFSIM_SIM_COMPILE_PROGRAM_H
#define OFFSIM_SIM_COMPILE_PROGRAM_H

#include "sim/graph/graph.h"
#include "sim/offload/policy.h"
#include "sim/plan/join.h"

typedef uint32_t place_id; /* 0: none */

/*
 *   kind               a       b       what happens
 *   -----------------  ------  ------  --------------------------------------------------------
 *   ALLOC              place   -       a new buffer, described by the place
 *   BIND               place   from    the place refers to the buffer of `from` too
 *   DROP               place   -       the place no longer refers to it; the last one frees it
 *   EMPTY              place   stream  the storage is freed although places refer to it, when
 *                                      the stream is done with it (HOST: at once)
 *   MARK               place   stream  the stream uses the buffer too (record_stream)
 *   FORGET             -       layer   the layer has run, or run again: frees what LEAVE has kept
 *   LEAVE              place   layer   the buffer stays until the layer's next FORGET, unless
 *                                      the layer has run for a newer micro-batch
 *   ATTRIBUTE          place   number  an attribute of the chunk's modules refers to the buffer, and
 *                                      no longer to the one that it was set to before
 *   REFILL             refill  -       allocates an emptied storage again, for all its places
 *   STEP               step    -       a kernel or collective
 *   DEFERRED_STEP      step    -       a kernel that may wait for the schedule's end (deferred.h)
 *   JOIN               stream  stream  the first waits for what was issued on the second
 *   ACCUMULATE         step    -       adds a new gradient to a parameter's, or becomes it
 *   HOST_SYNC          stream  flags   the host waits for the stream or the part before, and may read
 *   UNPACK             entry   -       backward needs this saved tensor on the device
 *   DROP_UNPACKED      entry   -       ... no longer; it goes if a hook has brought it
 *   ENTRY_READY        entry   -       a hook of the offload policy
 *   NODE_BACKWARD_END  entry   count   ... these entries have been used
 *   LAYER_BEGIN, _END  layer   pass    ... around a run of a layer
 *   GROUP_...          group   -       ... around a group, forward and backward
 */
enum host_sync_flags { SYNC_OF_PART = 1 << 0, SYNC_READS = 1 << 1 };

typedef enum instruction_kind {
  I_ALLOC,
  I_BIND,
  I_DROP,
  I_EMPTY,
  I_MARK,
  I_FORGET,
  I_LEAVE,
  I_ATTRIBUTE,
  I_REFILL,
  I_STEP,
  I_DEFERRED_STEP,
  I_ACCUMULATE,
  I_JOIN,
  I_HOST_SYNC,
  I_UNPACK,
  I_DROP_UNPACKED,
  I_GROUP_START,
  I_ENTRY_READY,
  I_NODE_BACKWARD_END,
  I_LAYER_BEGIN,
  I_LAYER_END,
  I_GROUP_COMMIT,
  I_GROUP_BACKWARD_COMMIT,
  I_GROUP_BACKWARD_START
} instruction_kind;

typedef struct instruction {
  uint32_t kind;
  uint32_t a;
  uint32_t b;
} instruction;

/* What ALLOC makes. */
typedef struct program_place {
  int64_t bytes;
  uint32_t tensor; /* index into plan.tensors */
  uint8_t purpose; /* buffer_class */
  uint8_t stream;  /* plan_stream */
  uint8_t filled;  /* the data loader brings it */
  uint8_t fresh;   /* while it is lowered: allocated, and no operand yet */
  /* gradients, while they are lowered: the place whose buffer it shares; 0 = its own */
  place_id same_as;
  /* the view by which an operator took the tensor whose gradient this is, 0 = none */
  tensor_id through;
  uint32_t entry; /* autograd's slot of that entry, 0 = none */
  uint32_t view;  /* gradients: the view by which readers find it in the buffer, a row of
                   * plan.views */
} program_place;

typedef struct program_step {
  uint8_t op;     /* OP_KERNEL or OP_COLLECTIVE */
  uint8_t stream; /* plan_stream */
  uint8_t reads, writes;
  uint32_t call;     /* index into plan.calls */
  uint32_t operands; /* first of reads + writes operands: places, or parameter references */
  uint32_t site;
  /* first of two views for each operand: of the storage, and of a copy with only the tensor's
   * elements; 0: the call's views fit both */
  uint32_t views;
} program_step;

/* An operand that is a parameter or its gradient, not a place: with an index into `parameters`. BIND takes
 * the former too. */
#define OPERAND_PARAMETER          (UINT32_C(1) << 31)
#define OPERAND_PARAMETER_GRADIENT (UINT32_C(1) << 30)

typedef struct program_parameter {
  int64_t bytes;
  uint32_t tensor; /* index into plan.tensors */
  int32_t layer;   /* -1 outside the layers */
  bool trainable;
  bool companion;             /* see graph_tensor */
  plan_view weight, gradient; /* its views of the buffers that contain it */
  /* Megatron's: its first row in the rank's list (rank_parameters.h), NO_ROW: unknown */
  uint32_t row;
  /* not a parameter but the static allocation of that name (emit_shared_buffer); else NULL */
  const char *shared;
  /* number of the next rows of `parameters` that are operands with this one: grouped experts with a
   * tensor for each weight */
  uint32_t parts;
} program_parameter;

/* Whether layer_offloading may move the parameter: a layer's frozen one. The scales of 4-bit
 * weights stay on the device. */
static inline bool program_parameter_visits(const program_parameter *p)
{
  return p->layer >= 0 && !p->trainable && !p->companion;
}

typedef struct program_refill {
  place_id handle;
  uint32_t first, count; /* in refill_places: every place that may refer to the storage */
} program_refill;

typedef struct instruction_array {
  instruction *items;
  uint32_t count, capacity;
} instruction_array;
typedef struct place_array {
  program_place *items;
  uint32_t count, capacity;
} place_array;
typedef struct step_array {
  program_step *items;
  uint32_t count, capacity;
} step_array;
typedef struct refill_array {
  program_refill *items;
  uint32_t count, capacity;
} refill_array;
typedef struct program_parameter_array {
  program_parameter *items;
  uint32_t count, capacity;
} program_parameter_array;
/* Instructions that a schedule runs without a break (sim/graph/graph.h, part_kind). */
typedef struct program_part {
  uint8_t kind;          /* part_kind */
  uint8_t stream;        /* plan_stream on which it runs */
  bool weight_gradients; /* backward: the weight gradients of the previous part, and the end of its
                          * layer */
  uint32_t first, end;
} program_part;
typedef struct program_part_array {
  program_part *items;
  uint32_t count, capacity;
} program_part_array;
typedef struct entry_array {
  saved_entry *items;
  uint32_t count, capacity;
} entry_array;
typedef struct group_array {
  saved_group *items;
  uint32_t count, capacity;
} group_array;

typedef struct chunk_program {
  instruction_array forward, backward;
  program_part_array forward_parts,
      backward_parts; /* in program order; none: the chunk has no parts */
  place_array places; /* [0] is none */
  step_array steps;
  operand_array operands;
  view_array step_views; /* [0] is none */
  /* hf: all, in the order of the graph; else those that are used */
  program_parameter_array parameters;
  refill_array refills;
  operand_array refill_places;
  entry_array entries; /* [0] is none; those saved in forward under a group come in group order */
  operand_array entry_places; /* by entry: the place of autograd's slot */
  operand_array held;         /* places of storages that operators refer to beside what they save */
  group_array groups;         /* [0] is none */
  place_id input;             /* hidden states received; 0 on the first virtual stage */
  place_id output;            /* hidden states to send, or the loss */
  place_id output_gradient;   /* received, or made by the program on the last virtual stage */
  place_id batch[BATCH_TENSORS]; /* frames.c drops them; 0: none, or forward drops it itself */
  place_id input_gradient;       /* to send; 0 on the first virtual stage */
} chunk_program;

/* Lowers a graph. Calls, sites and tensors go to the tables of `p`. */
chunk_program *lower_chunk(const settings *s, const graph *g, plan *p, arena *a);
void chunk_program_release(chunk_program *c);
/* Gives the rows of a plan's tables that it refers to their numbers in other tables. */
void chunk_program_renumber(chunk_program *c, const plan_rows *rows);

#endif
