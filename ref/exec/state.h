/*
 * The state of an execution. Each file of this folder has the functions after its heading.
 *
 * Everything that lasts for one iteration comes from `iteration`; cells are on the heap, because
 * they come and go, and outlive iterations.
 */
#ifndef OFFSIM_REF_EXEC_STATE_H
#define OFFSIM_REF_EXEC_STATE_H

#include "ref/exec/contents.h"
#include "ref/exec/exec.h"
#include "ref/exec/scratch.h"
#include "ref/exec/shadow.h"
#include "sim/base/array.h"
#include "sim/exec/disk.h"
#include "sim/exec/stage.h"

/* How written contents were lost. */
typedef enum loss_kind { NOT_LOST, LOST_BLOCK, LOST_FILE } loss_kind;

/* The memory of buffers: on the device, and mostly on the host, each has its own; page-locked
 * buffers with a key share it one after the other. */
typedef struct ref_cell {
  unsigned char *block; /* REF_EXACT: guard zone, bytes, guard zone; NULL: a file */
  int64_t bytes;
  shadow written;    /* REF_EXACT */
  contents contents; /* REF_OPAQUE */
  int64_t file_at;   /* offset in the file that contains all files */
  uint32_t owner;    /* the buffer whose contents these are, NO_BUFFER: none */
  uint32_t lost_to;  /* the buffer that got the block, or the op that removed the file */
  uint8_t lost;      /* loss_kind */
  uint8_t is_file;
  uint32_t users; /* buffers in it, plus one if it is in a pool */
} ref_cell;

/* The last op on a freed buffer that a stream has yet to run. */
typedef struct former_use {
  uint32_t buffer, stream, last;
} former_use;
typedef struct former_array {
  former_use *items;
  uint32_t count, capacity;
} former_array;

typedef struct held_buffer {
  ref_cell *cell;   /* NULL: not alive */
  uint32_t pending; /* operands of ops that have not run yet */
  uint32_t former;  /* uses of blocks of its pool when it was allocated: first row ... */
  uint32_t former_count;
  uint32_t block_of; /* the buffer that got its block, NO_BUFFER */
  uint8_t alive;     /* between its allocation and its free, as the host issues them */
  uint8_t begun;     /* an op has written it */
} held_buffer;

typedef struct cell_queue {
  ref_cell **items;
  uint32_t count, capacity, first;
} cell_queue;

typedef struct stream_state {
  uint32_t head;  /* the stream's next op, issued or not; NO_OP: none */
  uint8_t posted; /* `head` begins an exchange that the other sides may take part in */
} stream_state;

typedef struct rank_state {
  uint32_t number;
  const stage *stage;
  uint32_t issued; /* ops that the host thread has issued */
  stream_state streams[DEVICE_STREAMS];
  uint8_t *reached;     /* by event */
  uint8_t *transferred; /* by op: a message that was transferred */
  held_buffer *buffers;
  former_array returned[DEVICE_STREAMS]; /* by pool: uses of blocks that are free again */
  former_array inherited;                /* rows of held_buffer.former */
  int64_t device_bytes, device_peak_bytes;
  int64_t *after_op; /* by op: device_bytes */
  exec_fingerprint *prints;
  /* REF_OPAQUE, by buffer: hash of its contents after its last use, or at the end */
  uint64_t *last_contents;

  /* From one iteration to the next: */
  cell_queue *pools; /* by key of page-locked buffers; [0] is not used */
  uint32_t pool_count;
} rank_state;

/* The ops that send and receive a message, counted from 1; 0: the plan has no such side. */
typedef struct message_sides {
  uint32_t at[2];
} message_sides;

struct ref_exec {
  const exec_layout *layout;
  ref_options options;
  exec_hooks hooks;
  const plan *plan; /* the current or last plan */
  const plan
      *before;   /* REF_OPAQUE: the plan whose pools of page-locked buffers every iteration begins
                  * with, or NULL */
  stage *stages; /* [plan->rank_count] */
  message_sides *message_ops; /* by message */
  rank_state *ranks;          /* [layout->rank_count] */
  const exec_step *step;
  arena iteration, prepared, lasting; /* `prepared`: of the plan */
  exec_disk disk;
  scratch_stack scratch;
  int64_t array_bytes, limit_bytes; /* of all arrays; their limit */
  bool optimizer_reached;           /* before_optimizer has been called */
  uint64_t done;                    /* ops that have run */
  uint32_t (*sequence)[2]; /* (rank, op) in the order in which they ran; NULL: not recorded */
  exec_outcome outcome;
  const char *finding; /* from `lasting` */
  diag *d;
};

static inline bool is_going(const ref_exec *e)
{
  return e->outcome == EXEC_DONE;
}

/* Whether the stream has yet to run an op with a number up to `last`. */
static inline bool is_pending(const rank_state *r, uint32_t stream, uint32_t last)
{
  return r->streams[stream].head <= last;
}

/* ---- exec.c -------------------------------------------------------------------------------- */

/* Keeps the first finding only. */
void exec_wrong(ref_exec *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void exec_refused(ref_exec *e);

/* ---- buffers.c: cells, allocation, free, pools ----------------------------------------------- */

/* A cell with one user. NULL after a refusal. */
ref_cell *cell_new(ref_exec *e, int64_t bytes, buffer_class class);
/* Adds a user. */
ref_cell *cell_shared(ref_cell *c);
/* Removes a user. The last one checks the guard zones; a finding names `r` and `buffer`. */
void cell_release(ref_exec *e, const rank_state *r, uint32_t buffer, ref_cell *c);
/* The first byte of the array. */
unsigned char *cell_data(const ref_cell *c);
bool cell_guards_hold(const ref_cell *c);

void buffer_alloc(ref_exec *e, rank_state *r, uint32_t buffer);
/* The buffer also uses `c` from now on. */
void buffer_hold(rank_state *r, uint32_t buffer, ref_cell *c);
void buffer_free(ref_exec *e, rank_state *r, uint32_t op);
/* Call it for an operand of an op that has run: the last one of a freed buffer releases its
 * memory. */
void buffer_used(ref_exec *e, rank_state *r, uint32_t buffer);
/* Call it before an op writes the buffer. A removed file is a finding. */
void buffer_begin_write(ref_exec *e, rank_state *r, uint32_t buffer, uint32_t op);
/* Call it before an op reads the view `v` of the buffer (REF_OPAQUE: NULL); false after a finding. */
bool buffer_check_read(ref_exec *e, rank_state *r, uint32_t buffer, uint32_t op,
                       const plan_view *v);

/* ---- carry.c: from one iteration to the next ----------------------------------------------- */

void carry_begin(ref_exec *e, const plan *p);
void carry_release(ref_exec *e);

/* ---- work.c, opaque.c: what ops do --------------------------------------------------------- */

/* Runs one op of one rank: any but collectives and messages. */
void work_run(ref_exec *e, rank_state *r, uint32_t op);
/* Runs the same op of all members of a group, in the group's order. */
void work_collective(ref_exec *e, rank_state **members, const uint32_t *ops, uint32_t count);
void work_message(ref_exec *e, rank_state *from, uint32_t send, rank_state *to, uint32_t receive);

void opaque_run(ref_exec *e, rank_state *r, uint32_t op);
void opaque_message(ref_exec *e, rank_state *from, uint32_t send, rank_state *to, uint32_t receive);

/* After an op has run: fingerprint, hook, operands. */
void work_done(ref_exec *e, rank_state *r, uint32_t op, exec_fingerprint print);

/* ---- streams.c: what can go on ------------------------------------------------------------- */

/* Actors: the streams of a rank, and its host thread as STREAM_HOST. */
bool actor_can_go(const ref_exec *e, const rank_state *r, uint32_t stream);
/* One step of an actor that can go. */
void actor_go(ref_exec *e, rank_state *r, uint32_t stream);
/* Whether it has nothing left to do. */
bool actor_is_done(const rank_state *r, uint32_t stream);
void report_deadlock(ref_exec *e);

/* ---- schedule.c: in which order ------------------------------------------------------------ */

void run_in_program_order(ref_exec *e);
void run_interleaved(ref_exec *e, uint64_t seed);

#endif
