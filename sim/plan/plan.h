/*
 * THE PLAN: what the host thread of every pipeline rank issues in one iteration, as plain data.
 *
 * A plan contains no machine and no clock. Only these order two ops of a rank: program order for
 * the host, FIFO order of a stream, an event recorded and waited for, the host waiting, and a
 * message between ranks.
 *
 * Everything is an index: a buffer, an event, a call, a site. `plan` has the tables that ranks
 * share (calls, sites, names, messages); each rank has its ops, operands and buffers.
 *
 * Ownership: a plan owns its arrays; plan_release frees them. Names are in the plan's arena.
 */
#ifndef OFFSIM_SIM_PLAN_PLAN_H
#define OFFSIM_SIM_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/base/array.h"
#include "sim/base/diag.h"
#include "sim/plan/intern.h"
#include "sim/plan/kernels.h"

enum {
  PLAN_FORMAT_VERSION = 1,
  PLAN_DIMS = 8,
  PLAN_SCALARS = 4,
  PLAN_VIEW_DIMS = 6,
  PLAN_TENSOR_DIMS = 4
};

/*
 *   kind         stream  arg      operands        meaning
 *   -----------  ------  -------  --------------  -----------------------------------------------
 *   MARK         host    mark     -               a phase of the iteration begins (see plan_mark)
 *   ALLOC        pool    buffer   -               the buffer takes a block of its stream's pool
 *   FREE         pool    buffer   streams         the last reference dies; these may still use it
 *   HOST_ALLOC   host    buffer   -               a host buffer is taken, or a file created
 *   HOST_FREE    host    buffer   -               ... is returned, to its pool if it has one
 *   KERNEL       any     call     reads, writes   a kernel
 *   COLLECTIVE   any     call     reads, writes   a collective of the call's group
 *   D2H          any     views    source, target  device to host memory
 *   H2D          any     views    source, target  host to device memory
 *   DISK_WRITE   any     -        source, target  host memory to a file
 *   DISK_READ    any     -        source, target  a file to host memory
 *   RECORD       any     event    -               the event happens when the stream gets here
 *   WAIT         any     event    -               the stream goes on after the event
 *   HOST_WAIT    host    event    -               the host thread goes on after the event
 *   HOST_WORK    host    number   -               the host thread works, as long as that many operators take
 *   GRAPH_BEGIN  host    -        -               a captured graph begins, ...
 *   GRAPH_END    host    -        -               ... ends, and the host launches it at once
 *   SEND         any     message  read            to the message's other rank
 *   RECV         any     message  write           from the message's other rank
 *
 * Consecutive messages of a stream are one exchange (a group of isend and irecv): they begin
 * together and end together, in no order among themselves.
 */
/* clang-format off */
#define PLAN_OPS(X)            \
  X(MARK,       "mark",       "a phase of the iteration begins") \
  X(ALLOC,      "alloc",      "the buffer takes a block of its pool") \
  X(FREE,       "free",       "the last reference dies") \
  X(HOST_ALLOC, "host_alloc", "a host buffer is taken, or a file created") \
  X(HOST_FREE,  "host_free",  "a host buffer is returned, or a file removed") \
  X(KERNEL,     "kernel",     "a kernel") \
  X(COLLECTIVE, "collective", "a collective of a process group") \
  X(D2H,        "d2h",        "device to host memory") \
  X(H2D,        "h2d",        "host to device memory") \
  X(DISK_WRITE, "disk_write", "host memory to a file") \
  X(DISK_READ,  "disk_read",  "a file to host memory") \
  X(RECORD,     "record",     "the event happens when the stream gets here") \
  X(WAIT,       "wait",       "the stream goes on after the event") \
  X(HOST_WAIT,  "host_wait",  "the host thread goes on after the event") \
  X(HOST_READ,  "host_read",  "the same, with a value of that stream: its copy comes after earlier ones") \
  X(HOST_WORK,  "host_work",  "the host thread works, without launching anything") \
  X(GRAPH_BEGIN, "graph_begin", "a captured graph is launched: these ops") \
  X(GRAPH_END,  "graph_end",  "ops after it are issued one by one again") \
  X(SEND,       "send",       "to the message's other rank") \
  X(RECV,       "recv",       "from the message's other rank")

#define PLAN_STREAMS(X)                                                     \
  X(COMPUTE, "compute", "the framework's current stream")                   \
  X(D2H,     "d2h",     "copies to the host")                               \
  X(H2D,     "h2d",     "copies from the host")                             \
  X(COMM,    "comm",    "collectives and exchanges concurrent with compute")         \
  X(PREVIOUS, "previous", "overlapped exchanges with the previous rank")      \
  X(NEXT,    "next",    "overlapped exchanges with the next rank")         \
  X(A2A,     "a2a",     "exchange of tokens during compute of another micro-batch") \
  X(DISK_OUT, "disk_out", "threads that write files")                       \
  X(DISK_IN, "disk_in", "threads that read files")                          \
  X(PACK,    "pack",    "copies within the device, concurrent with compute")           \
  X(ACCUMULATE, "accumulate", "sums of weight gradients that autograd's accumulators form")    \
  X(WEIGHTS, "weights", "copies of experts' weights from the host: even chunks")   \
  X(WEIGHTS_ODD, "weights_odd", "... odd chunks")                           \
  X(CPU,     "cpu",     "arithmetic of the host's processor, for which the host thread waits") \
  X(HOST,    "host",    "no stream: the host thread itself")

/* What a buffer is for, and where it is (buffer_side); the report groups the peak by class. */
#define PLAN_CLASSES(X)          \
  X(WEIGHT,      "weight",      "parameters", ON_DEVICE) \
  X(GRADIENT,    "gradient",    "gradient buffers", ON_DEVICE) \
  X(OPTIMIZER,   "optimizer",   "optimizer states", ON_DEVICE) \
  X(WORKSPACE,   "workspace",   "library workspaces", ON_DEVICE) \
  X(RETAINED,    "retained",    "what a step leaves in memory", ON_DEVICE) \
  X(SAVED,       "saved",       "activations that autograd keeps", ON_DEVICE) \
  X(RELOAD,      "reload",      "activations that came back from the host", ON_DEVICE) \
  X(TRANSIENT,   "transient",   "temporaries", ON_DEVICE) \
  X(DRIVER,      "driver",      "what a library takes from the driver, beside PyTorch's allocator", ON_DEVICE) \
  X(PINNED_HOST, "pinned_host", "page-locked host memory", ON_HOST) \
  X(PAGEABLE_HOST, "pageable_host", "host memory that is not page-locked", ON_HOST) \
  X(DISK,        "disk",        "files", ON_DISK)

#define PLAN_DTYPES(X) \
  X(BYTE, "u8",  1)    \
  X(FP8,  "fp8", 1)    \
  X(BF16, "bf16", 2)   \
  X(FP16, "fp16", 2)   \
  X(FP32, "fp32", 4)   \
  X(FP64, "fp64", 8)   \
  X(INT32, "i32", 4)   \
  X(INT64, "i64", 8)

/* Process groups of collectives. */
#define PLAN_GROUPS(X)   \
  X(TP,    "tp",    "tensor parallel") \
  X(CP,    "cp",    "context parallel") \
  X(TP_CP, "tp_cp", "tensor x context parallel") \
  X(TP_DP, "tp_dp", "tensor x data parallel, with context parallel: the ranks of a stage") \
  X(EP,    "ep",    "expert parallel") \
  X(ETP,   "etp",   "expert tensor parallel") \
  X(TP_EP, "tp_ep", "expert tensor x expert parallel") \
  X(DP,    "dp",    "data parallel, with context parallel") \
  X(EDP,   "edp",   "expert data parallel") \
  X(WORLD, "world", "all ranks")    \
  X(EMBD,  "embd",  "the first and the last pipeline rank, which share an embedding")

#define PLAN_MARKS(X)                                                      \
  X(SETUP,     "setup",     "model, gradient buffers and optimizer are built") \
  X(FORWARD,   "forward",   "forward of (micro-batch, chunk)")             \
  X(BACKWARD,  "backward",  "backward of (micro-batch, chunk)")            \
  X(FINISH,    "finish",    "gradient reduction after the last backward")  \
  X(OPTIMIZER, "optimizer", "optimizer step")
/* clang-format on */

#define X(name, ...) OP_##name,
typedef enum op_kind { PLAN_OPS(X) OP_KINDS } op_kind;
#undef X
#define X(name, ...) STREAM_##name,
typedef enum plan_stream { PLAN_STREAMS(X) STREAMS } plan_stream;
#undef X
#define X(name, ...) CLASS_##name,
typedef enum buffer_class { PLAN_CLASSES(X) BUFFER_CLASSES } buffer_class;
#undef X
#define X(name, ...) DTYPE_##name,
typedef enum dtype { PLAN_DTYPES(X) DTYPES } dtype;
#undef X
#define X(name, ...) GROUP_##name,
typedef enum comm_group { PLAN_GROUPS(X) COMM_GROUPS } comm_group;
#undef X
#define X(name, ...) MARK_##name,
typedef enum mark_kind { PLAN_MARKS(X) MARK_KINDS } mark_kind;
#undef X
#define X(name, ...) KERNEL_##name,
typedef enum kernel_kind { PLAN_KERNELS(X) KERNEL_KINDS } kernel_kind;
#undef X
#define X(name, ...) COLLECTIVE_##name,
typedef enum collective_kind { PLAN_COLLECTIVES(X) COLLECTIVE_KINDS } collective_kind;
#undef X

typedef struct plan_op {
  uint8_t kind;      /* op_kind */
  uint8_t stream;    /* plan_stream */
  uint8_t reads;     /* number of operands read, which come first */
  uint8_t writes;    /* number of operands written, after them */
  uint32_t arg;      /* see the table above */
  uint32_t operands; /* first operand in the rank's operand array; FREE: bit mask of plan_streams */
  uint32_t site;     /* where in the model, index into plan.sites */
} plan_op;

/* A device or host buffer. Shape and name are those of its site's tensor. */
typedef struct plan_buffer {
  int64_t bytes;   /* as requested, not rounded */
  uint32_t tensor; /* index into plan.tensors: name, dtype, shape */
  uint32_t mark;   /* the phase that allocates it, index into the rank's marks; 0 for residents */
  uint8_t purpose; /* buffer_class */
  uint8_t stream;  /* plan_stream whose pool owns it; STREAM_HOST: host memory and files */
  uint8_t filled;  /* 1: it has contents from its allocation on: data that a loader brings, zeros */
  uint32_t host_key; /* pinned buffers: pool key (one per shape and dtype), 0 = no pool */
} plan_buffer;

typedef struct plan_tensor {
  const char *name; /* "core_attn.query" */
  uint32_t site;
  uint8_t dtype;
  uint8_t rank; /* dimensions used */
  int64_t shape[PLAN_TENSOR_DIMS];
} plan_tensor;

/* What a kernel sees of an operand: elements in row-major order of `shape`. */
typedef struct plan_view {
  uint8_t whole; /* the buffer has its tensor's type and shape, contiguous; all other fields are
                  * 0 */
  uint8_t dtype;
  uint8_t rank; /* dimensions used; 0: one element */
  uint8_t
      turned; /* 0, or the number of tensor parallel ranks, each of which sees another part: this is one
                      * of as many equal parts from the beginning of the buffer, and the rank of index i
                      * sees the part that is i further on, around */
  uint8_t unused[4]; /* 0: views are compared as bytes */
  int64_t offset;    /* elements of `dtype` from the beginning of the buffer */
  int64_t shape[PLAN_VIEW_DIMS];
  int64_t strides[PLAN_VIEW_DIMS]; /* elements; 0: repeats the same elements */
} plan_view;

/* A distinct kernel or collective call. Its cost depends only on kind, type, group, dims and bytes;
 * its result also on scalars and views. */
typedef struct plan_call {
  uint8_t is_collective;
  uint8_t kind; /* kernel_kind or collective_kind */
  uint8_t dtype;
  uint8_t group; /* collectives: comm_group */
  uint32_t group_size;
  uint32_t group_stride; /* distance between consecutive members of the group in global ranks */
  uint32_t views; /* views of the reads, then of the writes: first row in plan.views; 0: all are
                   * whole */
  uint32_t view_count;
  uint32_t unused; /* 0: calls are compared as bytes */
  int64_t dims[PLAN_DIMS];
  double scalars[PLAN_SCALARS]; /* by the letters after the dims' (kernels.h) */
  int64_t bytes;                /* memory traffic, or bytes sent (see kernels.h) */
} plan_call;

/* A place in the model, the same for all micro-batches. */
typedef struct plan_site {
  const char *module; /* "self_attention.linear_qkv", "embedding", "dp" */
  int32_t layer;      /* 0-based over the model, -1 outside the layers */
} plan_site;

typedef struct plan_mark {
  uint8_t kind; /* mark_kind */
  uint32_t microbatch;
  uint32_t chunk;
} plan_mark;

typedef struct plan_message {
  uint32_t from_rank, to_rank;
  int64_t bytes;
} plan_message;

typedef struct op_array {
  plan_op *items;
  uint32_t count, capacity;
} op_array;
typedef struct operand_array {
  uint32_t *items;
  uint32_t count, capacity;
} operand_array;
typedef struct buffer_array {
  plan_buffer *items;
  uint32_t count, capacity;
} buffer_array;
typedef struct mark_array {
  plan_mark *items;
  uint32_t count, capacity;
} mark_array;
typedef struct view_array {
  plan_view *items;
  uint32_t count, capacity;
} view_array;
typedef struct call_array {
  plan_call *items;
  uint32_t count, capacity;
} call_array;
typedef struct site_array {
  plan_site *items;
  uint32_t count, capacity;
} site_array;
typedef struct tensor_array {
  plan_tensor *items;
  uint32_t count, capacity;
} tensor_array;
typedef struct message_array {
  plan_message *items;
  uint32_t count, capacity;
} message_array;

typedef struct line_array {
  int32_t *items;
  uint32_t count, capacity;
} line_array;

typedef struct id_array {
  uint32_t *items;
  uint32_t count, capacity;
} id_array;

/* The part of a rank that repeats from turn to turn (repeats.h). */
typedef struct plan_repeat {
  uint32_t first; /* first op of the first turn */
  uint32_t ops;   /* of a turn */
  uint32_t turns; /* 0: nothing repeats, or plan_find_repeats was not called */
  /* By how much ids grow from turn to turn: of marks, messages, buffers that a turn takes and events that it
   * records. */
  uint32_t marks, messages, buffers, events;
  /* By id, of those that are taken before the first turn ends: the one in its place a turn earlier, itself if
   * it stays. Ids that later turns take have grown evenly. */
  id_array earlier_buffers, earlier_events;
} plan_repeat;

typedef struct rank_plan {
  op_array ops;
  operand_array operands;
  buffer_array buffers; /* the first `residents` exist at the beginning, in allocation order */
  mark_array marks;     /* marks[0] means "before the iteration" */
  uint32_t residents;
  uint32_t events;  /* event ids are 0 .. events-1, each recorded at most once */
  line_array lines; /* by op: its line in the text that was read; empty: compiled */
  plan_repeat repeat;
} rank_plan;

/*
 * Each pipeline rank represents equally many consecutive global ranks, all of which do what its ops
 * say. The members of a collective's group have global ranks (plan_call), so a group is on one
 * pipeline rank or on several.
 */
typedef struct plan {
  uint32_t rank_count;
  uint32_t global_ranks; /* a multiple of rank_count */
  rank_plan *ranks;      /* [rank_count], by pipeline rank */
  call_array calls;
  view_array views; /* each distinct list of views once; views[0] is whole */
  site_array sites; /* sites[0] is nowhere */
  tensor_array tensors;
  message_array messages;
  const char *own_streams[STREAMS]; /* a text's own names of streams; NULL: that of PLAN_STREAMS */
  arena *names;
  intern_table call_rows, view_lists; /* of plan_call_row and plan_call_views */
  operand_array view_list_first;      /* by list: its first row in views */
} plan;

/* An empty plan whose names live in `a`, which must outlive it. */
plan plan_new(uint32_t rank_count, arena *a);
void plan_release(plan *p);
/* All but the ranks. */
void plan_release_tables(plan *p);

/* Whether both have the same ops on the same buffers, calls and places. */
bool plan_is_same(const plan *a, const plan *b);

/* Asserts for a plan that a program has made what plan_parse (text.h) checks in a text: for the
 * shared tables only, or for everything, which visits every op. */
void plan_assert_tables(const plan *p);
void plan_assert_valid(const plan *p);

/* The row of a call; equal calls share one. Unused bytes of `call` must be zero. */
uint32_t plan_call_row(plan *p, const plan_call *call);
/* The first row in plan.views of a list of views; equal lists share one. */
uint32_t plan_view_list_row(plan *p, const plan_view *views, uint32_t count);
/* How many views the list with this number has. */
uint32_t plan_view_list_length(const plan *p, uint32_t list);
/* The row of one view in plan.views. */
uint32_t plan_view_row(plan *p, const plan_view *view);
/* The row of the views of a copy's source and target, which is its op's arg; 0: both are whole. */
uint32_t plan_copy_views(plan *p, const plan_view *source, const plan_view *target);
/* Sets the views of a call's operands: `count` views, whose unused bytes are zero. */
void plan_call_views(plan *p, plan_call *call, const plan_view *views, uint32_t count);
/* The view of an op's operand number `i`, counting reads, then writes; and its row in plan.views. */
plan_view plan_op_view(const plan *p, const plan_op *o, uint32_t i);
uint32_t plan_op_view_row(const plan *p, const plan_op *o, uint32_t i);
/* Elements that a view which is not whole sees, and their bytes; an element that it repeats counts again. */
int64_t view_elements(const plan_view *v);
int64_t bytes_of_view(const plan_view *v);
/* Whether the elements are contiguous. */
bool view_is_contiguous(const plan_view *v);
/* Whether a view that turns is one of equal parts. */
bool view_can_turn(const plan_view *v);
/* What the tensor parallel rank of this index sees: a view that does not turn. */
plan_view view_of_index(const plan_view *v, uint32_t index);

/* Bytes [begin, end) of a buffer. */
typedef struct byte_range {
  int64_t begin, end;
} byte_range;

/* From the first byte that a view sees to the last one; empty if it has no elements. False: it
 * begins before the buffer or exceeds int64. */
bool plan_view_bytes(const plan_view *v, byte_range *bytes);

typedef enum buffer_side { ANY_SIDE, ON_DEVICE, ON_HOST, ON_DISK } buffer_side;
buffer_side class_side(buffer_class of); /* never ANY_SIDE */

/* Whether PyTorch's allocator has the buffer. Inline because every replay asks for each of its requests. */
static inline bool buffer_is_allocated(const plan_buffer *b)
{
  return b->purpose <= CLASS_TRANSIENT;
}

/* Whether a stream runs the op; else only the host thread does. Inline because the engine calls it
 * for every op. */
static inline bool op_runs_on_stream(op_kind kind)
{
  const uint32_t on_stream = 1u << OP_KERNEL | 1u << OP_COLLECTIVE | 1u << OP_D2H | 1u << OP_H2D |
                             1u << OP_DISK_WRITE | 1u << OP_DISK_READ | 1u << OP_RECORD |
                             1u << OP_WAIT | 1u << OP_SEND | 1u << OP_RECV;
  return on_stream >> kind & 1;
}

/* Prefetches the ops that a loop over a rank's ops reaches soon. A rank's ops are many times larger than
 * the CPU's caches, and the loop's other accesses hide from the CPU that it reads them in order. */
static inline void prefetch_ops(const rank_plan *r, uint32_t at)
{
  const uintptr_t ahead = 64 * sizeof(plan_op);
  uintptr_t there = (uintptr_t)&r->ops.items[at] + ahead;
  __builtin_prefetch((const void *)there); /* does nothing where the ops have ended */
}

/* Whether the op has operands and works on buffers. */
static inline bool op_works(op_kind kind)
{
  return op_runs_on_stream(kind) && kind != OP_RECORD && kind != OP_WAIT;
}

/* The host thread waits for an event. */
static inline bool op_is_host_wait(op_kind kind)
{
  return kind == OP_HOST_WAIT || kind == OP_HOST_READ;
}

/* Takes or returns a buffer: its arg. */
static inline bool op_is_memory(op_kind kind)
{
  return kind == OP_ALLOC || kind == OP_FREE || kind == OP_HOST_ALLOC || kind == OP_HOST_FREE;
}

/* A stream or the host thread waits for an event. */
static inline bool op_waits_for_event(op_kind kind)
{
  return kind == OP_WAIT || op_is_host_wait(kind);
}

/* Whether the op copies between device and host, or between host and disk: it reads one buffer and
 * writes one. Inline because the engine calls it for every op. */
static inline bool op_is_copy(op_kind kind)
{
  return kind == OP_D2H || kind == OP_H2D || kind == OP_DISK_WRITE || kind == OP_DISK_READ;
}

/* A kernel or collective: its arg is a call. */
static inline bool op_is_call(op_kind kind)
{
  return kind == OP_KERNEL || kind == OP_COLLECTIVE;
}

static inline bool op_is_message(op_kind kind)
{
  return kind == OP_SEND || kind == OP_RECV;
}

/* Of a copy between device and host both sides may be a part of a buffer; the host's part is contiguous. */
static inline bool copy_may_be_part(op_kind kind)
{
  return kind == OP_D2H || kind == OP_H2D;
}

static inline uint32_t copy_device_operand(const plan_op *o)
{
  return o->kind == OP_H2D;
}

/* The buffer whose size is the copy's, if all of it is copied: the one on the host. */
static inline const plan_buffer *copy_host_buffer(const rank_plan *r, const plan_op *o)
{
  bool to_host = o->kind == OP_D2H || o->kind == OP_DISK_READ;

  return &r->buffers.items[r->operands.items[o->operands + to_host]];
}

/* What a copy moves: the host's part. */
static inline int64_t copy_bytes(const plan *p, const rank_plan *r, const plan_op *o)
{
  const plan_view *part = &p->views.items[o->arg + (o->kind == OP_D2H)];

  return o->arg == 0 || part->whole ? copy_host_buffer(r, o)->bytes : bytes_of_view(part);
}

/* Names as in a plan's text. They are never freed. */
const char *op_name(op_kind kind);
const char *stream_name(plan_stream stream);
/* ... as this plan's text calls it. */
const char *plan_stream_name(const plan *p, plan_stream stream);
const char *class_name(buffer_class of);
const char *dtype_name(dtype type);
int64_t dtype_bytes(dtype type); /* of an element */
const char *group_name(comm_group group);
const char *mark_name(mark_kind kind);
const char *kernel_name(kernel_kind kind);
const char *collective_name(collective_kind kind);
/* The name of the kernel or of the collective. */
const char *call_name(const plan_call *call);
/* What the op runs: the name of its call, if it has one, else that of its kind. */
const char *plan_op_name(const plan *p, const plan_op *o);

#endif
