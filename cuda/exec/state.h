/*
 * The state of an execution on GPUs. Each file of this folder has the functions after its heading.
 *
 * Each rank has a host thread while an iteration runs; only that thread uses the rank's state then,
 * and only the caller between iterations. Shared state is in cuda_exec.
 */
#ifndef OFFSIM_CUDA_EXEC_STATE_H
#define OFFSIM_CUDA_EXEC_STATE_H

#include <pthread.h>

#include "cuda/exec/exec.h"
#include "cuda/kernels/digest.h"
#include "cuda/kernels/kernel.h"
#include "cuda/memory/device_memory.h"
#include "cuda/memory/host_memory.h"
#include "cuda/memory/scratch.h"
#include "cuda/memory/uploads.h"
#include "cuda/peers/exchange.h"
#include "sim/exec/disk.h"
#include "sim/world/world.h"

#define NO_GPU UINT32_MAX

/* The memory of cuda_exec_digest's kernel: its result, then its scratch memory. */
enum { DIGEST_BYTES = 256 };

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
  uint32_t telling; /* the op whose hook runs, or NO_OP */
  struct {
    uint32_t *items;
    uint32_t count, capacity;
  } pending; /* every_op: exchanges whose hook has not run yet */
} op_watches;

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
  failure_sink sink; /* patience.c reads which op is issued */
  rank_queue queue;
  device_memory device;
  host_memory host;
  scratch_memory scratch;
  upload_ring uploads;
  held_buffer *buffers;
  cuda_libraries *libraries; /* NULL in exact */
  struct {
    uint64_t *items;
    uint32_t count, capacity;
  } rehearsed; /* library calls that have been launched once (rehearsal.c) */
  op_watches watches;
  struct {
    uint32_t ops;
    int64_t begin_ps;
  } burst;           /* issued since the GPU rested (cuda_options.rests_from) */
  int64_t *left_out; /* on the device */
  void *contents;    /* what cuda_exec_data has returned */
  int64_t contents_bytes;
  void *digest;      /* on the device */
  int64_t *after_op; /* by op: device.requested_bytes */
  rank_curves curves;
  cuda_memory told; /* of another process's rank */
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
  const plan *plan; /* the current or last plan */
  stage *stages;
  arena iteration, prepared, lasting; /* `prepared`: of the plan */
  const exec_step *step;
  int64_t step_ps, left_out; /* dropped tokens, of all ranks */

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

/* Whether this process runs the rank. */
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

/* Another rank's failure ends it at any time: nothing may assert it. */
static inline bool is_going(const rank_run *r)
{
  return sink_is_open(&r->sink);
}

/* Checks the result of a driver call: true if it succeeded. */
static inline bool rank_ok(rank_run *r, const char *answer)
{
  return sink_ok(&r->sink, answer);
}

static inline buffer_side side_of(const stage *s, uint32_t buffer)
{
  return class_side((buffer_class)stage_buffer(s, buffer)->purpose);
}

/* ---- failure.c: something went wrong, everybody stops ---------------------------------------- */

/* A rank's finding: "rank 1: op 57 (gemm @ layer 0 mlp.linear_fc1): why". */
void rank_sink_init(rank_run *r);
/* A complete finding. Only the first is kept. */
void run_wrong(cuda_exec *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As rank_run.sink.refused, from a stream, which must not call the driver: hosts notice it at their
 * next op. */
void op_refused(rank_run *r, uint32_t op, const char *text);

/* ---- buffers.c: from allocation to free, and from one iteration to the next ------------------ */

void held_alloc(rank_run *r, uint32_t buffer);
/* OP_FREE and OP_HOST_FREE. */
void held_free(rank_run *r, const plan_op *o);

/* The previous iteration's buffers become this one's residents. */
typedef struct past {
  const plan *plan; /* NULL: this is the first iteration */
  const stage *stage;
  held_buffer *buffers;
} past;
void carry_residents(rank_run *r, const past *before);

/* ---- fills.c --------------------------------------------------------------------------------- */

/* Gets the contents of a new buffer from the hooks and copies them there. */
void held_fill(rank_run *r, uint32_t buffer);

/* ---- operands.c: what an op is given --------------------------------------------------------- */

enum { MOST_OPERANDS = 512 };
typedef struct op_call {
  const plan_op *op;
  uint32_t count;
  plan_view *views;
  exec_tensor *tensors;
  exec_call call;
} op_call;
typedef struct operand_room {
  plan_view views[MOST_OPERANDS];
  exec_tensor tensors[MOST_OPERANDS];
} operand_room;
/* Uses memory of `room`. False after a finding. */
bool op_call_begin(rank_run *r, uint32_t op, operand_room *room, op_call *c);
/* For a kernel or a collective whose buffers may not be allocated yet: without addresses. */
void op_call_shapes(const rank_run *r, uint32_t op, operand_room *room, op_call *c);
static inline held_buffer *op_buffer(const rank_run *r, const op_call *c, uint32_t i)
{
  assert(i < c->count);
  return &r->buffers[stage_operand(r->stage, c->op, i)];
}

/* ---- work.c, transfers.c: what runs on streams ----------------------------------------------- */

bool is_fast(const rank_run *r, const exec_call *c);
void kernel_issue(rank_run *r, const op_call *c);
void collective_issue(rank_run *r, const op_call *c, uint32_t op);
void message_issue(rank_run *r, const op_call *c, uint32_t op);
/* Scratch memory for all ops of the plan. */
bool scratch_prepare(rank_run *r);
void copy_issue(rank_run *r, const op_call *c);
void file_issue(rank_run *r, const op_call *c);

/* rehearsal.c: before the first iteration of a plan whose ranks wait for each other. */
bool rehearse(rank_run *r);

/* ---- issue.c: the host thread ---------------------------------------------------------------- */

/* Issues one op of a stream, with its measurement and watches; rank_queue.issue_later. */
void issue_stream_op(void *rank, uint32_t op);
void issue_all(rank_run *r);

/* ---- patience.c: a note where a long iteration is ------------------------------------------- */

patience *patience_new(const cuda_exec *e);
/* Call these when an iteration is issued, and when it is done. */
void patience_begin(patience *p);
void patience_end(patience *p);
void patience_release(patience *p);

/* ---- watches.c: hooks.op_done ---------------------------------------------------------------- */

void watches_prepare(rank_run *r);
void watches_release(rank_run *r);
/* Call it after an op of a stream was issued. */
void watches_issued(rank_run *r, uint32_t op);
/* Call it before the host issues an op: with every_op, runs the hooks of exchanges whose operands
 * it uses. */
void watches_before(rank_run *r, uint32_t op);
/* The iteration is over. */
void watches_tell(rank_run *r);
/* What the op whose hook runs wrote to a buffer; NULL: it was not kept. */
void *watched_data(const rank_run *r, uint32_t buffer);

/* ---- spread.c: what other processes have ----------------------------------------------------- */

/* After an iteration: memory and times of all ranks. */
void spread_figures(cuda_exec *e);
/* A process that fails ends all processes: the others wait for it in calls that cannot be
 * interrupted. */
exec_outcome spread_outcome(cuda_exec *e);

/* ---- inspect.c ------------------------------------------------------------------------------- */

/* For a rank of this process. */
cuda_memory rank_memory(const rank_run *r);

#endif
