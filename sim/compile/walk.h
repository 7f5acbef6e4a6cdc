/*
 * The walk over one rank's schedule (walk_schedule.c): runs the chunk programs, once for each
 * micro-batch (walk_program.c), and emits the ops. It also has the state of sim/offload/actions.h.
 */
#ifndef OFFSIM_SIM_COMPILE_WALK_H
#define OFFSIM_SIM_COMPILE_WALK_H

#include <assert.h>

#include "sim/compile/compile.h"
#include "sim/offload/actions.h"

#define NO_BUFFER UINT32_MAX

/* See held.h. */
enum { HELD_BUFFERS = 8 };
typedef struct held_buffers {
  uint32_t items[HELD_BUFFERS];
  uint32_t count;
} held_buffers;

/* One chunk in flight for one micro-batch. */
typedef struct instance {
  struct instance *next_free;
  uint32_t *buffer_of; /* by place: NO_BUFFER or a buffer of the rank */
  uint32_t *host_of;   /* by entry: NO_BUFFER or its host buffer */
  uint32_t *file_of;   /* by entry: NO_BUFFER or its file */
  bool *unpacked;      /* by entry: a hook has brought it back */
  bool *packed_alone,
      *alone; /* by entry: the host's or the device's buffer has only the tensor's elements, in
               * order, not a whole storage */
  uint32_t *weight_of, *gradient_of; /* by parameter of the chunk: see walk */
  event_id part_done;                /* combined.c: the event after the part that ran last, */
  plan_stream part_stream;           /* ... and on which stream */
} instance;

/* What the autograd graph of a layer's newest run leaves: see graph_part, and leaves_graph of
 * graph_node. */
typedef struct layer_leftover {
  held_buffers buffers;
  instance_id newest;
} layer_leftover;

/* A forward or backward of which some parts have run. */
typedef struct part_cursor {
  instance_id instance;
  mark_kind direction;
  uint32_t next; /* in the program's parts */
} part_cursor;

/*
 * A buffer's references, packed: the number of places that refer to it, the other streams that have
 * used it (record_stream), and whether its storage was freed while they refer to it.
 *
 *          the last drop
 *   USED -----------------> freed
 *     |                                the last drop
 *     +---- empty storage ---> EMPTIED -------------> nothing: it was freed when it was emptied
 */
enum { REFERENCE_COUNT = (1 << 17) - 1, REFERENCE_MARK_SHIFT = 17 };
#define REFERENCE_EMPTIED (UINT32_C(1) << 31)

_Static_assert(REFERENCE_EMPTIED >> REFERENCE_MARK_SHIFT >= 1 << STREAM_HOST,
               "a mark for each stream");
_Static_assert((REFERENCE_COUNT & 1 << REFERENCE_MARK_SHIFT) == 0, "marks are above the count");

typedef struct reference_array {
  uint32_t *items;
  uint32_t count, capacity;
} reference_array;
typedef struct host_key {
  uint8_t dtype;
  int64_t shape[4];
} host_key;
typedef struct host_key_array {
  host_key *items;
  uint32_t count, capacity;
} host_key_array;

/* A deferred step, with the buffers of its operands instead of their places. */
enum { DEFERRED_OPERANDS = 4 };
typedef struct deferred_step {
  program_step step;
  uint32_t buffers[DEFERRED_OPERANDS];
} deferred_step;
typedef struct deferred_array {
  deferred_step *items;
  uint32_t count, capacity;
} deferred_array;

struct walk {
  const settings *settings;
  plan *plan;
  rank_plan *rank;
  uint32_t pp_rank;
  uint32_t chunk_count;
  chunk_program **programs; /* [chunk_count] */
  schedule schedule;
  const offload_policy *policy;
  void *state;
  /* layer_offloading beside the policy: hooks.h; NULL: not beside */
  const offload_policy *beside;
  void *beside_state;
  iteration_kind iteration;
  bool every_turn;    /* none is copied: turns.h */
  arena *memory;      /* the compilation's */
  arena of_instances; /* while they are walked */

  instance **instances;       /* by instance_id */
  instance **free_instances;  /* by chunk */
  uint32_t **entry_key;       /* by chunk and entry: its host_key index + 1, 0 = not yet */
  reference_array references; /* by buffer */
  host_key_array host_keys;   /* [0] is none */
  uint32_t *posted;           /* by schedule step: the event recorded after an exchange */
  uint32_t mark;
  int64_t offloaded_groups;   /* groups with at least one tensor on the host */
  instance_id last_offloaded; /* the last such group, */
  uint32_t last_group;        /* ... and its number */
  int64_t **copied_bytes;     /* by chunk and group: to the host */
  plan_stream stream;         /* the host thread's current stream, see program_part */
  part_cursor ahead, back;    /* combined.c: the open pair */
  layer_leftover *left;       /* leftovers.c: by layer */
  operand_array *attributes;  /* attributes.c: by chunk, their buffers; NO_BUFFER: not set */
  /* the pair's layers are done; its forward's exchanges run after the token exchange */
  bool exchanges_of_pair;
  held_buffers held_by_popped, held_gradient, held_to_end;
  operand_array batches; /* frames.c: what the data iterator keeps of the step */
  id_array retained;     /* buffers that the step leaves as CLASS_RETAINED */
  instance_id last_forward, first_steady;
  deferred_array deferred;          /* deferred.c: products that wait for the end of the schedule */
  operand_array stashed;            /* deferred.c: the buffers that they read */
  bool stashing;                    /* the current backward has deferred a product */
  bool forward_seen, backward_seen; /* the first forward, the first backward has begun */
  /* By chunk and parameter: its buffer, NO_BUFFER while it has none (parameters.h). */
  uint32_t **weight_of, **gradient_of;
  struct statics *statics;      /* statics.c's own */
  struct fsdp *fsdp;            /* fsdp.c's own, NULL without */
  struct fsdp_buckets *buckets; /* fsdp_buckets.c's own, NULL without */
  struct weights *weights;      /* weights.c's own */
};

/* Emits everything that rank does in the iteration. Returns how many turns it has copied (turns.h). */
uint32_t walk_rank(walk *w);

/* Numbers every host buffer that any policy could request, so that a key means the same in all
 * iterations, because the pool outlives an iteration. */
void walk_number_host_keys(walk *w);

/* ---- running a program: walk_program.c ---------------------------------------------------------- */

/* Runs the instructions [from, to). */
void walk_run(walk *w, instance_id i, const instruction_array *code, uint32_t from, uint32_t to);
/* Emits a step whose operands are these buffers. */
void walk_emit_step(walk *w, const program_step *step, const uint32_t *buffers);
/* The buffer of a step's operand. */
uint32_t walk_operand(const instance *in, uint32_t operand);

/* ---- ops, buffers and instances, for all of sim/compile: walk.c, actions.c ---------------------- */

void walk_begin_mark(walk *w, mark_kind kind, uint32_t microbatch, uint32_t chunk);
/* Marks the ops that follow as the instance's forward or backward. */
void walk_mark(walk *w, mark_kind direction, instance_id i);
/* Inline, as every op comes through here. */
static inline plan_op *walk_emit(walk *w, op_kind kind, plan_stream stream, uint32_t arg)
{
  plan_op *made = ARRAY_PUSH(&w->rank->ops);
  *made = (plan_op){ .kind = (uint8_t)kind, .stream = (uint8_t)stream, .arg = arg };
  return made;
}
uint32_t walk_new_buffer(walk *w, plan_buffer description);
/* A buffer that exists when the iteration begins. */
uint32_t walk_resident(walk *w, plan_buffer description);

/* A new device buffer; the caller has checked the arguments. */
static inline uint32_t walk_take(walk *w, int64_t bytes, uint32_t tensor, uint8_t class,
                                 uint8_t pool, uint8_t filled)
{
  /* Member by member: a copy of a struct would make the CPU wait for the stores just made. */
  uint32_t made = w->rank->buffers.count;
  plan_buffer *b = ARRAY_PUSH(&w->rank->buffers);
  b->bytes = bytes;
  b->tensor = tensor;
  b->mark = w->mark;
  b->purpose = class;
  b->stream = pool;
  b->filled = filled;
  b->host_key = 0;
  *ARRAY_PUSH(&w->references) = 1;
  walk_emit(w, OP_ALLOC, (plan_stream)pool, made);
  return made;
}

uint32_t walk_alloc(walk *w, int64_t bytes, uint32_t tensor, buffer_class class, plan_stream pool);
/* A transient matrix of compute, with a tensor of its own in the plan. */
uint32_t walk_alloc_matrix(walk *w, const char *name, dtype type, int64_t rows, int64_t columns);
/* The buffer has contents that no op writes. */
void walk_fill(walk *w, uint32_t buffer);
/* A pinned host buffer; `key` 0: it belongs to no pool. */
uint32_t walk_host_alloc(walk *w, int64_t bytes, uint32_t tensor, uint32_t key);
/* Emits a kernel or a collective, with the buffers that it reads and writes; its site is nowhere. */
plan_op *walk_call(walk *w, plan_stream stream, const plan_call *call, const uint32_t *reads,
                   uint32_t read_count, const uint32_t *writes, uint32_t write_count);
/* A buffer, and the view of it: a row of plan.views; 0: the whole buffer. */
typedef struct walk_operand_view {
  uint32_t buffer, view;
} walk_operand_view;
/* Emits a copy; its site is the tensor's. */
void walk_copy(walk *w, op_kind kind, plan_stream stream, uint32_t from, uint32_t to,
               uint32_t tensor);
/* The copy between device and host that was emitted last is one of these parts. */
void walk_copy_parts(walk *w, const plan_view *source, const plan_view *target);
/* Emits a kernel that copies within the device or, on STREAM_CPU, within the host's memory. */
void walk_copy_kernel(walk *w, plan_stream stream, walk_operand_view from, walk_operand_view to,
                      uint32_t tensor, int64_t elements, int64_t traffic_bytes);
/* References to a device buffer. */
static inline uint32_t walk_references(const walk *w, uint32_t buffer)
{
  assert(buffer < w->references.count);
  return w->references.items[buffer] & REFERENCE_COUNT;
}
/* Adds a reference to a buffer that has one, or is new. */
static inline void walk_refer(walk *w, uint32_t buffer)
{
  assert(buffer < w->references.count);
  assert((w->references.items[buffer] & REFERENCE_COUNT) != REFERENCE_COUNT &&
         "too many references");
  w->references.items[buffer]++;
}

static inline void walk_free(walk *w, uint32_t buffer)
{
  assert(buffer < w->references.count && !(w->references.items[buffer] & REFERENCE_EMPTIED) &&
         "a buffer is freed once");
  uint32_t marks =
      (w->references.items[buffer] & ~(uint32_t)REFERENCE_EMPTIED) >> REFERENCE_MARK_SHIFT;
  plan_stream pool = (plan_stream)w->rank->buffers.items[buffer].stream;
  if (pool == STREAM_HOST)
    walk_emit(w, OP_HOST_FREE, STREAM_HOST, buffer);
  else
    walk_emit(w, OP_FREE, pool, buffer)->operands = marks & ~(UINT32_C(1) << pool);
}

static inline void walk_drop_reference(walk *w, uint32_t buffer)
{
  uint32_t *references = &w->references.items[buffer];
  assert((*references & REFERENCE_COUNT) != 0 && "a dropped reference existed");
  if ((--*references & (REFERENCE_COUNT | REFERENCE_EMPTIED)) == 0) walk_free(w, buffer);
}

/* The step leaves the buffer as CLASS_RETAINED. */
void walk_retain(walk *w, uint32_t buffer);
/* ... if it has this size, and its storage was not freed. */
bool walk_retain_of_size(walk *w, uint32_t buffer, int64_t bytes);
/* record_stream: when the buffer's last reference dies, its block is marked as used by `stream`. */
void walk_mark_stream(walk *w, uint32_t buffer, plan_stream stream);
/* The host waits for what was issued on the stream. */
void walk_host_sync(walk *w, plan_stream stream);
/* The host waits for every stream (torch.cuda.synchronize). */
void walk_device_sync(walk *w);
/* The host waits for the compute stream and reads a value (`.item()`, `.tolist()`). */
void walk_host_read(walk *w);

/* An instance in flight. Open it before its first use; close it after its last send, when it refers
 * to nothing. */
static inline instance *walk_instance(const walk *w, instance_id i)
{
  assert(w->instances[i] != NULL && "a chunk that is not in flight");
  return w->instances[i];
}

/* The walk owns it until it is closed. */
instance *walk_open_instance(walk *w, instance_id i);
void walk_close_instance(walk *w, instance_id i);

static inline void walk_alloc_place(walk *w, const chunk_program *p, instance *in, place_id id)
{
  const program_place *what = &p->places.items[id]; /* lower_place has checked it */
  assert(id > 0 && id < p->places.count);
  assert(in->buffer_of[id] == NO_BUFFER && "a place refers to one buffer");
  in->buffer_of[id] =
      walk_take(w, what->bytes, what->tensor, what->purpose, what->stream, what->filled);
}

/* Drops the place's reference. Place 0, or a place without a buffer, is allowed. */
void walk_drop_place(walk *w, instance_id i, place_id p);
static inline void walk_drop(walk *w, instance *in, place_id p)
{
  if (in->buffer_of[p] != NO_BUFFER) walk_drop_reference(w, in->buffer_of[p]);
  in->buffer_of[p] = NO_BUFFER;
}

/* A policy's STREAM_COMPUTE is the framework's current stream. */
static inline plan_stream walk_stream(const walk *w, plan_stream stream)
{
  return stream == STREAM_COMPUTE ? w->stream : stream;
}
static inline chunk_program *walk_program(const walk *w, instance_id i)
{
  return w->programs[i % w->chunk_count];
}

#endif
