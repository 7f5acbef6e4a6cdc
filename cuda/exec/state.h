/*
 * The state of an execution on GPUs. Each file of this folder has the functions named behind its
 * own heading.
 *
 * Each rank has a host thread while an iteration runs; what belongs to a rank is that thread's
 * then, and the caller's between iterations. What ranks share stands in cuda_exec.
 */
#ifndef OFFSIM_CUDA_EXEC_STATE_H
#define OFFSIM_CUDA_EXEC_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda/device/device.h"
#include "cuda/exec/exec.h"
#include "cuda/kernels/kernel.h"
#include "cuda/measure/measure.h"
#include "cuda/peers/exchange.h"
#include "cuda/world/world.h"
#include "sim/base/array.h"
#include "sim/exec/disk.h"
#include "sim/exec/stage.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/pinned_pool.h"

/* What a buffer has between its allocation and its free. */
typedef struct held_buffer {
  unsigned char *data; /* device or host memory; NULL: a file, or nothing. Stays after the free for
                          ops that are issued later (graphs.c) */
  int64_t bytes;       /* of the buffer itself, by dtypes and shapes */
  int64_t file_at;     /* files: where in the file of all files */
  uint32_t handle;     /* the caching allocator's block, or the pinned pool's handle */
  uint8_t stream;      /* plan_stream whose pool it came from */
  uint8_t alive;
} held_buffer;

/* ---- events of memory: when a freed block can be used again ---------------------------------- */

typedef enum memory_event_state { EVENT_SPARE, EVENT_LATER, EVENT_RECORDED } memory_event_state;

typedef struct memory_event {
  gpu_event *event;
  uint8_t state;
  uint8_t stream; /* EVENT_LATER: where it is to be recorded when the capture is over */
} memory_event;

typedef struct memory_event_list {
  memory_event *items;
  uint32_t count, capacity;
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } spare, later;
} memory_event_list;

/* ---- memory ---------------------------------------------------------------------------------- */

/* One of two, by cuda_options.backing. */
typedef struct device_memory {
  caching_allocator *blocks; /* CUDA_CACHING */
  gpu_space space;           /* its addresses are offsets into it */
  gpu_stream *side;          /* CUDA_MALLOC_ASYNC: frees that wait for several streams */
  gpu_event *order;
} device_memory;

/* Memory of malloc that streams may still use: freed behind their events. */
typedef struct dead_memory {
  void *data;
  uint32_t count, events[DEVICE_STREAMS];
} dead_memory;

typedef struct host_memory {
  pinned_pool *pool;
  struct {
    void **items;
    uint32_t count, capacity;
  } blocks;           /* by handle of the pool */
  uint32_t last_back; /* stream of the last copy back, NO_STREAM */
  struct {
    dead_memory *items;
    uint32_t count, capacity;
  } dead;
} host_memory;

#define NO_STREAM UINT32_MAX
#define NO_GPU    UINT32_MAX

typedef struct scratch_area {
  void *data;
  int64_t bytes;
} scratch_area;

/* Page-locked memory through which fills go to the device (fills.c). */
typedef struct upload_slot {
  unsigned char *data;
  gpu_event *event;
  bool used;
} upload_slot;
enum { UPLOAD_SLOTS = 64 };
typedef struct fill_uploads {
  unsigned char *ring; /* NULL until needed */
  upload_slot slots[UPLOAD_SLOTS];
  uint32_t next;
  void *area; /* what hooks.fill writes */
  int64_t area_bytes;
} fill_uploads;

/* What a watched op wrote, copied in the stream's order (watches.c). */
typedef struct watched_buffer {
  uint32_t op, buffer;
  unsigned char *data;
  int64_t bytes;
} watched_buffer;
typedef struct op_watches {
  watched_buffer *items; /* in program order */
  uint32_t count, capacity;
  unsigned char *memory; /* page-locked */
  int64_t memory_bytes;
  uint32_t telling; /* op whose hook runs, NO_OP */
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } pending; /* every_op: exchanges that have not been told yet */
} op_watches;

/* A region between GRAPH_BEGIN and GRAPH_END (graphs.c). */
typedef struct graph_region {
  bool open;      /* the host is between the two */
  bool capturing; /* the compute stream is */
  uint32_t first; /* op with which the capture began */
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } later;                            /* ops of other streams that wait for what is captured */
  bool later_streams[DEVICE_STREAMS]; /* those that have any */
  uint8_t *event_state;               /* by event of the plan: graph_event */
  struct {
    gpu_graph **items;
    uint32_t count, capacity;
  } graphs; /* of an iteration, one after the other */
  uint32_t next;
} graph_region;

/* ---- ranks ----------------------------------------------------------------------------------- */

/* By op. */
typedef struct rank_curves {
  int64_t *live, *reserved, *host; /* NULL without options.times */
  int64_t *begin_ps, *end_ps;
} rank_curves;

typedef struct rank_run {
  cuda_exec *exec;
  const gpu_driver *driver;
  uint32_t number, gpu;
  pthread_t thread;
  const stage *stage;
  _Atomic uint32_t at; /* the op that is issued, NO_OP; patience.c reads it */
  gpu_stream *streams[DEVICE_STREAMS];
  cuda_libraries *libraries; /* NULL in exact */
  struct {
    uint64_t *items;
    uint32_t count, capacity;
  } rehearsed;           /* calls of libraries that have been launched once (rehearsal.c) */
  gpu_stream *inspector; /* for contents that the caller asks for */
  scratch_area scratch[DEVICE_STREAMS];
  struct {
    gpu_event **items;
    uint32_t count, capacity;
  } events; /* by event of the plan */
  held_buffer *buffers;
  device_memory device;
  host_memory host;
  memory_event_list memory_events;
  fill_uploads uploads;
  op_watches watches;
  struct {
    uint32_t ops;
    int64_t begin_ps;
  } burst; /* issued since the GPU rested (cuda_options.rests_from) */
  graph_region graph;
  int64_t *left_out; /* on the device */
  void *contents;    /* what cuda_exec_data has given out */
  int64_t contents_bytes;
  void *digest; /* on the device */

  /* own counting, in program order */
  int64_t requested_bytes, requested_peak_bytes;
  int64_t *after_op;
  int64_t held_host_bytes, locked_bytes, guard_bytes, guard_peak_bytes, broken_guards;
  int64_t reserved_peak_bytes; /* since the first iteration */
  int64_t pool_high_bytes, driver_used_bytes;
  rank_curves curves;
  cuda_memory told; /* of a rank that another process has */
} rank_run;

typedef struct patience patience;

struct cuda_exec {
  const exec_layout *layout;
  cuda_options options;
  exec_hooks hooks;
  const gpu_driver *driver;
  const cuda_kernel_row *kernels; /* exact */
  const cuda_collective_row *collectives;
  uint32_t *gpu_of;   /* [ranks]; NO_GPU: another process has it */
  uint32_t first_gpu; /* of this process */
  rank_run *ranks;
  exchange *exchange;
  patience *patience;
  measure *measure;
  bool measuring; /* this iteration */
  exec_disk disk;
  pthread_mutex_t disk_lock, hook_lock;
  const plan *plan; /* that runs or has run last */
  stage *stages;
  arena iteration, prepared, lasting; /* `prepared`: of the plan */
  const exec_step *step;
  int64_t step_ps, left_out; /* choices, of all ranks */

  /* All ranks at the optimizer. */
  pthread_mutex_t lock; /* of all from here on */
  pthread_cond_t changed;
  uint32_t at_optimizer, with_optimizer;
  bool optimizer_passed;
  atomic_bool stopped;
  exec_outcome outcome;
  const char *finding; /* from `lasting` */
  diag *d;
};

/* Other processes run the others. */
static inline bool is_here(const rank_run *r)
{
  return world_has(r->number, r->exec->layout->rank_count);
}

static inline uint32_t ranks_here(const cuda_exec *e)
{
  uint32_t ranks = 0;
  for (uint32_t i = 0; i < e->layout->rank_count; i++)
    ranks += world_has(i, e->layout->rank_count);
  return ranks;
}

static inline bool is_going(const rank_run *r)
{
  return !atomic_load_explicit(&r->exec->stopped, memory_order_relaxed);
}

static inline buffer_side side_of(const rank_run *r, uint32_t buffer)
{
  return class_side((buffer_class)stage_buffer(r->stage, buffer)->purpose);
}

/* ---- failure.c: something went wrong, everybody stops ---------------------------------------- */

/* A complete finding. The first one counts. */
void run_wrong(cuda_exec *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "rank 1: op 57 (gemm @ layer 0 mlp.linear_fc1): why" */
void rank_wrong(rank_run *r, const char *why);
/* Memory or disk; the text as in diag_refused, behind rank and op. */
void rank_refused(rank_run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same from a stream, which may call nothing of the driver: hosts notice at their next op. */
void op_refused(rank_run *r, uint32_t op, const char *text);

/* What a call of the driver has answered: true if it succeeded. */
static inline bool rank_ok(rank_run *r, const char *answer)
{
  if (answer != NULL) rank_wrong(r, answer);
  return answer == NULL;
}

/* ---- streams.c: streams and events of a rank ------------------------------------------------- */

/* Those that the stage's plan uses, and its events. */
bool streams_prepare(rank_run *r);
void streams_release(rank_run *r);
/* All that has been given to the rank's streams is done. */
bool streams_synchronize(rank_run *r);

/* An event behind all that has been given to a stream so far; its number, for allocators. */
uint32_t memory_event_after(rank_run *r, uint32_t stream);
bool memory_event_done(void *rank, uint32_t number);
/* Records those that had to wait for the end of a capture. */
void memory_events_record_later(rank_run *r);
void memory_events_wait(rank_run *r);
void memory_events_release(rank_run *r);

/* ---- device_memory.c, async_memory.c, host_memory.c: where bytes come from ------------------- */

bool device_memory_new(rank_run *r);
void device_memory_release(rank_run *r);
/* Both backings: memory for `b`, of h->bytes and guards. False after a refusal. */
bool device_take(rank_run *r, const plan_buffer *b, held_buffer *h);
/* `streams`: plan_streams that still use it. */
void device_give(rank_run *r, const held_buffer *h, uint32_t streams);
int64_t device_live_bytes(const rank_run *r);
int64_t device_reserved_bytes(const rank_run *r);

bool async_memory_new(rank_run *r);
void async_memory_release(rank_run *r);
bool async_take(rank_run *r, int64_t bytes, uint32_t stream, unsigned char **data);
void async_give(rank_run *r, void *data, uint32_t stream, uint32_t streams);

void host_memory_new(rank_run *r);
void host_memory_release(rank_run *r);
bool host_take(rank_run *r, const plan_buffer *b, held_buffer *h);
void host_give(rank_run *r, uint32_t buffer);
/* Frees what no stream uses any more. */
void host_memory_poll(rank_run *r);

/* ---- guards.c: zones of known bytes around device memory ------------------------------------- */

enum { GUARD_BYTES = 512 };
/* What is asked for a buffer: itself, and zones on both sides if there are any. */
int64_t guarded_bytes(const rank_run *r, int64_t bytes);
/* h->data is the begin of all; moves it behind the first zone and writes both. */
bool guards_begin(rank_run *r, held_buffer *h);
/* Looks at both; a broken one is a finding. No stream uses the buffer any more. */
void guards_check(rank_run *r, uint32_t buffer);
/* Waits for the rank's streams, and looks. */
void guards_end(rank_run *r, uint32_t buffer);
unsigned char *guarded_begin(const rank_run *r, const held_buffer *h);

/* ---- buffers.c, carry.c: from allocation to free --------------------------------------------- */

void held_alloc(rank_run *r, uint32_t buffer);
void held_free(rank_run *r, uint32_t op);
/* Gives back what the buffer has; `streams` as in device_give. */
void held_return(rank_run *r, uint32_t buffer, uint32_t streams);
/* It is there from now on. */
void held_count(rank_run *r, uint32_t buffer, int sign);

/* What the iteration before has left becomes this one's residents. */
typedef struct past {
  const plan *plan; /* NULL: nothing has run before */
  const stage *stage;
  held_buffer *buffers;
} past;
void carry_residents(rank_run *r, const past *before);

/* ---- fills.c --------------------------------------------------------------------------------- */

/* Asks hooks.fill for the contents of a new buffer and brings them there. */
void held_fill(rank_run *r, uint32_t buffer);
void uploads_release(rank_run *r);

/* ---- operands.c: what an op is given --------------------------------------------------------- */

enum { MOST_OPERANDS = 512 };
typedef struct op_call {
  const plan_op *op;
  uint32_t count;
  plan_view *views;
  exec_tensor *tensors;
  exec_call call;
} op_call;
/* False after a finding. Memory of `room`, which has at least as many rows as the op has operands.
 */
typedef struct operand_room {
  plan_view views[MOST_OPERANDS];
  exec_tensor tensors[MOST_OPERANDS];
} operand_room;
bool op_call_begin(rank_run *r, uint32_t op, operand_room *room, op_call *c);
uint32_t op_operand(const rank_run *r, const op_call *c, uint32_t i);
/* Of a kernel or a collective, whose buffers may not be there yet: without addresses. */
void op_call_shapes(const rank_run *r, uint32_t op, operand_room *room, op_call *c);
exec_tensor operand_tensor(const held_buffer *h, const plan_view *v);

/* ---- work.c, copies.c, files.c: what runs on streams ------------------------------------------
 */

void work_issue(rank_run *r, uint32_t op);
void work_kernel(rank_run *r, const op_call *c);
bool work_is_fast(const rank_run *r, const exec_call *c);
/* At least so much scratch memory for a stream. */
bool scratch_reserve(rank_run *r, uint32_t stream, int64_t bytes);
/* Enough for all ops of the plan: CUDA takes memory back only when the whole GPU is done, which it
 * is not while another rank's stream is held at a gate. */
bool scratch_prepare(rank_run *r);
/* rehearsal.c: before the first iteration of a plan whose ranks wait for each other. */
bool rehearse(rank_run *r);
void copy_issue(rank_run *r, const op_call *c);
void file_issue(rank_run *r, const op_call *c);

/* ---- graphs.c -------------------------------------------------------------------------------- */

void graph_begin_iteration(rank_run *r);
void capture_region_begin(rank_run *r);
void capture_region_end(rank_run *r);
/* Launches what has been captured so far, and issues what waits for it. Nothing if nothing is. */
void graph_launch(rank_run *r);
/* Before an op of a stream is issued: true if it is to be issued now, false if it has been put off.
 */
bool graph_admit(rank_run *r, uint32_t op);
/* Is an event on this stream to be recorded when the capture is over? */
bool graph_holds(const rank_run *r, uint32_t stream);
void graphs_release(rank_run *r);

/* ---- issue.c: the host thread ---------------------------------------------------------------- */

/* One op of a stream, with its measurement and what is watched. */
void issue_stream_op(rank_run *r, uint32_t op);
void issue_all(rank_run *r);

/* ---- patience.c: a note where an iteration stands that takes long ---------------------------- */

patience *patience_new(const cuda_exec *e);
/* An iteration is issued; it is done. Its ranks stay what they are in between. */
void patience_begin(patience *p);
void patience_end(patience *p);
void patience_release(patience *p);

/* ---- watches.c: hooks.op_done ---------------------------------------------------------------- */

void watches_prepare(rank_run *r);
void watches_release(rank_run *r);
/* An op of a stream has been issued. */
void watches_issued(rank_run *r, uint32_t op);
/* Before the host issues an op: every_op, exchanges whose operands it touches are told. */
void watches_before(rank_run *r, uint32_t op);
/* The iteration is over. */
void watches_tell(rank_run *r);
/* What the op that is told wrote to a buffer; NULL: it has not been kept. */
void *watched_data(const rank_run *r, uint32_t buffer);

/* ---- spread.c: what other processes have --------------------------------------------------------
 */

/* Whoever has the rank gives all others what it holds: in the order of calls. */
void *spread_data(cuda_exec *e, uint32_t rank, uint32_t buffer);
void spread_digest(const cuda_exec *e, uint32_t rank, exec_digest *digest);
/* After an iteration: memory and times of all ranks. */
void spread_figures(cuda_exec *e);
/* A process that fails ends all of them: the others wait for it where nothing reaches them. */
exec_outcome spread_outcome(cuda_exec *e);

/* inspect.c: of a rank that is here; NULL: it is not there. */
void *rank_data(rank_run *r, uint32_t buffer);
cuda_memory rank_memory(const rank_run *r);
bool contents_reserve(rank_run *r, int64_t bytes);

/* ---- iteration.c ----------------------------------------------------------------------------- */

/* The mark `optimizer`: all ranks come together, and one calls the hook. */
void wait_for_optimizer(rank_run *r);

#endif
