/*
 * The walk over a rank's ops that knows which ops have touched which memory. buffers.c does it, and
 * reports what a step does wrong alone; next_step.c reports what it does to the step before.
 */
#ifndef OFFSIM_SIM_VERIFY_BUFFER_WALK_H
#define OFFSIM_SIM_VERIFY_BUFFER_WALK_H

#include "sim/verify/cut.h"
#include "sim/verify/findings.h"
#include "sim/verify/parts.h"

/* The last op of one stream that touched freed blocks, and its buffer. */
typedef struct former_use {
  uint32_t op, buffer;
} former_use;
typedef struct former_uses {
  former_use on[DEVICE_STREAMS];
  uint32_t users; /* streams that have one, a bit each */
} former_uses;

/*
 * Memory that buffers use one after the other. On the device, each buffer has its own: whatever a block's
 * earlier buffer did is among its pool's former uses.
 *
 *          allocated              freed           the next buffer of the pool
 *   (none) ---------> LIVES IN IT -----> freed -----------------------------> LIVES IN IT, lent
 */
typedef struct cell {
  uint32_t parts;  /* the first of them */
  uint32_t found;  /* the one where the last search ended */
  uint32_t buffer; /* the buffer there, or the last one */
  bool freed;
  bool written;          /* some of that buffer has been written */
  bool lent;             /* host: the last touch was by an earlier buffer */
  bool lasting;          /* it has a past: it was there before the step, or its pool had it */
  bool unknown;          /* what it has inherited has not been compared (walk_state) */
  former_uses inherited; /* device: the pool's uses when the buffer was allocated */
} cell;

typedef struct host_queue {
  uint32_t *items;
  uint32_t count, capacity, first;
  uint32_t taken; /* number of buffers that the step has taken so far */
} host_queue;

/* A use that comes before everything else that a step does to a buffer, as far as its own rank's
 * program order says: the step before may still use the memory. */
typedef struct early_use {
  uint32_t buffer, op;
  bool writes;
  byte_range bytes; /* of the buffer */
} early_use;
typedef struct early_use_array {
  early_use *items;
  uint32_t count, capacity;
} early_use_array;
typedef struct cell_array {
  cell *items;
  uint32_t count, capacity;
} cell_array;

typedef struct index_array {
  uint32_t *items;
  uint32_t count, capacity;
} index_array;

typedef struct rank_walk {
  verification *v;
  const rank_plan *plan;
  const rank_order *order;
  const op_gap *gap;
  uint32_t rank, keys;
  const knowledge *known;   /* what the op at hand knows */
  uint32_t lesson[STREAMS]; /* by stream: that of its last op */
  cell_array cells;
  part_array parts;      /* of all cells */
  uint32_t *cell_of;     /* by buffer */
  index_array unused;    /* cells of blocks that the step has allocated and freed */
  former_uses *returned; /* by pool: uses of blocks that were returned to it */
  host_queue *pools;     /* by key */
  uint32_t *taken_as;    /* by buffer with a key: how many the pool had handed out before it */
  early_use_array early; /* of residents and of buffers with a key */
  early_use_array first_writes; /* of device buffers that the step allocates, until ... */
  bool settled[DEVICE_STREAMS]; /* ... the stream knows that the step before is over */
  bool reported;                /* something, be it advice */
  bool unknown;                 /* an op after the gap uses a buffer that has no name before it */
} rank_walk;

/* What an op sees of its operand number `i`. */
static inline byte_range operand_bytes(const rank_walk *w, const plan_op *o, uint32_t i)
{
  const plan *p = w->v->plan;
  if (!op_is_call((op_kind)o->kind)) return w->v->seen[plan_op_view_row(p, o, i)];
  uint32_t views = p->calls.items[o->arg].views;
  if (views == 0) return whole_memory;
  uint32_t buffer = w->plan->operands.items[o->operands + i];
  bool turns = w->v->turns != NULL && w->plan->buffers.items[buffer].purpose == CLASS_DRIVER;
  return turns ? w->v->turns[views + i] : w->v->seen[views + i];
}

/* `step_before`: `first`, numbered from 1, is of the step before. */
void report_use(rank_walk *w, finding_kind kind, uint32_t first, uint32_t second, uint32_t buffer,
                uint32_t reused, bool step_before);

bool is_on_device(const rank_walk *w, uint32_t buffer);

/* Whether the buffer has contents that no op writes: what setup makes is initialised with the
 * model. */
bool has_contents(const rank_walk *w, uint32_t buffer);

/* Whether the buffer is in the memory that it was given. */
bool is_alive(const rank_walk *w, uint32_t buffer);

/* What has touched those bytes of a cell. */
uses cell_uses(rank_walk *w, const cell *c, byte_range bytes);

/* Of the ops up to `use`, on its stream, the last that touched those bytes of the buffer and is no
 * unread copy; 0: none. */
uint32_t harmful_use(const rank_walk *w, uint32_t buffer, byte_range bytes, uint32_t use);

/* Reports what the next step, which issues the same ops, does with memory that this one still
 * uses. */
void find_races_with_next_step(rank_walk *w, arena *a);

/* Once nothing is found before the rank's gap and what is known there moves: goes on past turns after it
 * that need not be looked at, and returns the gap with them. */
op_gap walk_past_later_turns(rank_walk *w, const rank_cut *c, arena *a);

/* What a walk knows between two ops: words, each of which is a fact or an op. */
typedef struct word {
  bool is_op;
  uint32_t value; /* ops are numbered from 1, 0: none */
} word;
typedef struct word_array {
  word *items;
  uint32_t count, capacity;
} word_array;
typedef struct walk_state {
  word_array words;  /* those of buffers come last */
  uint32_t buffers;  /* that the rank has had so far */
  uint32_t alive;    /* of them */
  uint32_t *word_of; /* by buffer: the first of its words, NO_WORD: it is not alive */
  uint32_t *taken;   /* by key: buffers taken from its pool so far */
} walk_state;

#define NO_WORD UINT32_MAX

/* From `a`; release the state too. */
walk_state walk_state_of(rank_walk *w, uint32_t buffers, arena *a);
void walk_state_release(walk_state *s);

/* Whether the state at the cut is that of a turn before; adds the moves of ops. */
bool walk_state_moves(const walk_state *before, const walk_state *after, rank_cut *c);

#endif
