/*
 * Races on buffers: a walk over a rank's ops in program order that records, for each buffer, the
 * last op of each stream that touched it. Later ops of a stream imply the earlier ones, so that is
 * enough.
 */
#include <assert.h>

#include "sim/verify/findings.h"

/* Ops are numbered from 1 here; 0: none. */
typedef struct uses {
  uint32_t last[DEVICE_STREAMS]; /* by stream: the last op that touched it */
  uint32_t write;                /* the last op that wrote it */
} uses;

/*
 * Memory that buffers use one after the other. On the device, each buffer has its own.
 *
 *          allocated              freed           the next buffer of the pool
 *   (none) ---------> LIVES IN IT -----> freed -----------------------------> LIVES IN IT, lent
 */
typedef struct cell {
  uses uses;
  uint32_t buffer; /* the buffer there, or the last one */
  bool freed;
  bool lent; /* host: the last touch was by an earlier buffer */
} cell;

/* The last op of one stream that touched freed blocks, and its buffer. */
typedef struct former_use {
  uint32_t op, buffer;
} former_use;
typedef struct former_uses {
  former_use on[DEVICE_STREAMS];
} former_uses;

typedef struct host_queue {
  uint32_t *items;
  uint32_t count, capacity, first;
} host_queue;
typedef struct cell_array {
  cell *items;
  uint32_t count, capacity;
} cell_array;

typedef struct rank_walk {
  verification *v;
  const rank_plan *plan;
  const rank_order *order;
  uint32_t rank;
  cell_array cells;
  uint32_t *cell_of;      /* by buffer */
  former_uses *returned;  /* by pool: uses of blocks that were returned to it */
  former_uses *inherited; /* by buffer: the pool's uses when it was allocated */
  host_queue *pools;      /* by key */
} rank_walk;

static void report(rank_walk *w, finding_kind kind, uint32_t first, uint32_t second,
                   uint32_t buffer, uint32_t reused)
{
  add_finding(w->v, (finding){ .kind = (uint8_t)kind,
                               .rank = w->rank,
                               .first = first == 0 ? NO_OP : first - 1,
                               .second = second,
                               .buffer = buffer,
                               .reused = reused });
}

/* Whether an earlier op, numbered from 1, is certainly done when `op` begins. */
static bool is_done(const rank_walk *w, uint32_t earlier, uint32_t op)
{
  return earlier == 0 || is_done_before(w->plan, w->order, earlier - 1, op);
}

/* ---- pools --------------------------------------------------------------------------------- */

static uint32_t new_cell(rank_walk *w, uint32_t buffer)
{
  *ARRAY_PUSH(&w->cells) = (cell){ .buffer = buffer };
  return w->cells.count - 1;
}

/* Takes the buffer that was returned first, done or not; PyTorch's allocator (no key) waits for
 * copies. */
static void take_host_buffer(rank_walk *w, uint32_t buffer)
{
  host_queue *q = &w->pools[w->plan->buffers.items[buffer].host_key];
  bool pooled = w->plan->buffers.items[buffer].host_key != 0;
  if (!pooled || q->first == q->count) {
    w->cell_of[buffer] = new_cell(w, buffer);
    return;
  }
  assert(q->first < q->count);
  w->cell_of[buffer] = q->items[q->first++];
  cell *c = &w->cells.items[w->cell_of[buffer]];
  c->buffer = buffer;
  c->freed = false;
  c->uses.write = 0;
  c->lent = true;
}

static void take_block(rank_walk *w, uint32_t buffer)
{
  w->cell_of[buffer] = new_cell(w, buffer);
  w->inherited[buffer] = w->returned[w->plan->buffers.items[buffer].stream];
}

/* Reports a finding about a stream that a FREE names. */
static void report_mark(rank_walk *w, finding_kind kind, uint32_t stream, uint32_t use,
                        uint32_t index)
{
  report(w, kind, use, index, w->plan->ops.items[index].arg, NO_BUFFER);
  w->v->findings.items[w->v->findings.count - 1].stream = (uint8_t)stream;
}

/* The block is free for the pool's next request, after the named streams are done with it. */
static void give_block(rank_walk *w, const plan_op *op, uint32_t index)
{
  cell *c = &w->cells.items[w->cell_of[op->arg]];
  assert(!c->freed && c->buffer == op->arg);
  former_use *on = w->returned[op->stream].on;
  for (uint32_t s = 0; s < DEVICE_STREAMS; s++) {
    bool named = op->operands >> s & 1;
    if (named && c->uses.last[s] == 0) report_mark(w, FINDING_USELESS_MARK, s, 0, index);
    if (named && c->uses.last[s] > w->order->end.done_to[s])
      report_mark(w, FINDING_NEVER_REUSABLE, s, c->uses.last[s], index);
    if (!named && c->uses.last[s] > on[s].op) on[s] = (former_use){ c->uses.last[s], op->arg };
  }
  c->freed = true;
}

/* A freed file is gone at once, so the host must know that no op uses it. Memory that is not
 * page-locked is safe: the driver has copied it when a call returns, and threads that write files
 * keep a reference. */
static void check_gone(rank_walk *w, uint32_t buffer, uint32_t index)
{
  const uses *u = &w->cells.items[w->cell_of[buffer]].uses;
  for (int s = 0; s < DEVICE_STREAMS; s++)
    if (u->last[s] > w->order->at[index].done_to[s])
      report(w, FINDING_FREED_IN_USE, u->last[s], index, buffer, NO_BUFFER);
}

static void give_host_buffer(rank_walk *w, uint32_t buffer, uint32_t index)
{
  const plan_buffer *b = &w->plan->buffers.items[buffer];
  assert(!w->cells.items[w->cell_of[buffer]].freed && "freed once");
  w->cells.items[w->cell_of[buffer]].freed = true;
  if (class_side((buffer_class)b->purpose) == ON_DISK) check_gone(w, buffer, index);
  if (b->host_key != 0) *ARRAY_PUSH(&w->pools[b->host_key]) = w->cell_of[buffer];
}

/* ---- uses ---------------------------------------------------------------------------------- */

static bool is_on_device(const rank_walk *w, uint32_t buffer)
{
  return class_side((buffer_class)w->plan->buffers.items[buffer].purpose) == ON_DEVICE;
}

/* The uses by the block's former owners must be done, unless the free named their streams. */
static void check_inherited(rank_walk *w, uint32_t buffer, uint32_t op)
{
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    const former_use *use = &w->inherited[buffer].on[s];
    if (!is_done(w, use->op, op)) report(w, FINDING_BLOCK_REUSED, use->op, op, use->buffer, buffer);
  }
}

static void touch(rank_walk *w, cell *c, uint32_t op)
{
  c->uses.last[w->plan->ops.items[op].stream] = op + 1;
}

/* The parser and the compile walk both ensure that no freed buffer is used. */
static cell *living_cell(const rank_walk *w, uint32_t buffer)
{
  cell *c = &w->cells.items[w->cell_of[buffer]];
  assert(!c->freed && c->buffer == buffer);
  return c;
}

static void read_buffer(rank_walk *w, uint32_t buffer, uint32_t op)
{
  cell *c = living_cell(w, buffer);
  if (c->uses.write == 0 && !is_on_device(w, buffer) && buffer >= w->plan->residents)
    report(w, FINDING_NEVER_WRITTEN, 0, op, buffer, NO_BUFFER);
  if (!is_done(w, c->uses.write, op))
    report(w, FINDING_READ_BEFORE_WRITE, c->uses.write, op, buffer, NO_BUFFER);
  touch(w, c, op);
}

static bool names(const rank_walk *w, const plan_op *o, uint32_t from, uint32_t count,
                  uint32_t buffer)
{
  const uint32_t *operands = &w->plan->operands.items[o->operands];
  for (uint32_t i = from; op_works((op_kind)o->kind) && i < from + count; i++)
    if (operands[i] == buffer) return true;
  return false;
}

/* A copy that is freed before anything reads it: whatever it holds does no harm. Looked up where there is
 * a finding, which is seldom. */
static bool is_unread_copy(const rank_walk *w, uint32_t index)
{
  const plan_op *ops = w->plan->ops.items;
  if (!op_is_copy((op_kind)ops[index].kind)) return false;
  assert(ops[index].writes == 1);
  uint32_t copy = w->plan->operands.items[ops[index].operands + ops[index].reads];
  for (uint32_t i = index + 1; i < w->plan->ops.count; i++) {
    const plan_op *o = &ops[i];
    if (names(w, o, 0, o->reads, copy)) return false;
    if ((o->kind == OP_FREE || o->kind == OP_HOST_FREE) && o->arg == copy) return true;
  }
  return false;
}

/* Of the ops up to `use`, on its stream, the last that touched the buffer and is no unread copy; 0: none. */
static uint32_t harmful_use(const rank_walk *w, uint32_t buffer, uint32_t use)
{
  const plan_op *ops = w->plan->ops.items;
  uint8_t stream = ops[use - 1].stream;
  for (uint32_t i = use; i-- > 0;) {
    const plan_op *o = &ops[i];
    if ((o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) && o->arg == buffer) return 0;
    if (o->stream == stream && names(w, o, 0, (uint32_t)o->reads + o->writes, buffer) &&
        (names(w, o, o->reads, o->writes, buffer) || !is_unread_copy(w, i)))
      return i + 1;
  }
  return 0;
}

/* A write that does not wait for a read. */
static void report_overwrite(rank_walk *w, uint32_t use, uint32_t op, uint32_t buffer)
{
  uint32_t harmful = harmful_use(w, buffer, use);
  if (is_done(w, harmful, op))
    report(w, FINDING_OVERWRITTEN_COPY, use, op, buffer, buffer);
  else
    report(w, FINDING_WRITE_BEFORE_READ, harmful, op, buffer, buffer);
}

static void write_buffer(rank_walk *w, uint32_t buffer, uint32_t op)
{
  cell *c = living_cell(w, buffer);
  if (is_on_device(w, buffer) && buffer >= w->plan->residents && c->uses.write == 0)
    check_inherited(w, buffer, op);
  for (int s = 0; s < DEVICE_STREAMS; s++) {
    uint32_t use = c->uses.last[s];
    if (use == op + 1 || is_done(w, use, op)) continue;
    if (c->lent)
      report(w, FINDING_HOST_BUFFER_REUSED, use, op, buffer, buffer);
    else if (use == c->uses.write)
      report(w, FINDING_WRITE_BEFORE_WRITE, use, op, buffer, buffer);
    else
      report_overwrite(w, use, op, buffer);
  }
  c->lent = false;
  c->uses.write = op + 1;
  touch(w, c, op);
}

/* ---- the walk ------------------------------------------------------------------------------ */

static void use_operands(rank_walk *w, const plan_op *op, uint32_t index)
{
  const uint32_t *operands = &w->plan->operands.items[op->operands];
  for (uint32_t i = 0; i < op->reads; i++)
    read_buffer(w, operands[i], index);
  for (uint32_t i = 0; i < op->writes; i++)
    write_buffer(w, operands[op->reads + i], index);
}

static void walk_op(rank_walk *w, uint32_t index)
{
  const plan_op *op = &w->plan->ops.items[index];
  switch ((op_kind)op->kind) {
  case OP_ALLOC: take_block(w, op->arg); break;
  case OP_FREE: give_block(w, op, index); break;
  case OP_HOST_ALLOC: take_host_buffer(w, op->arg); break;
  case OP_HOST_FREE: give_host_buffer(w, op->arg, index); break;
  case OP_KERNEL:
  case OP_COLLECTIVE:
  case OP_D2H:
  case OP_H2D:
  case OP_DISK_WRITE:
  case OP_DISK_READ:
  case OP_SEND:
  case OP_RECV: use_operands(w, op, index); break;
  case OP_MARK:
  case OP_RECORD:
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END: break;
  case OP_KINDS: assert(0 && "no such kind of op");
  }
}

static uint32_t key_count(const rank_plan *p)
{
  uint32_t most = 0;
  for (uint32_t b = 0; b < p->buffers.count; b++)
    if (p->buffers.items[b].host_key > most) most = p->buffers.items[b].host_key;
  return most + 1;
}

/* A page-locked resident with a key is a spare of its pool. So are the buffers that the previous
 * iteration left there: all of them are free again, in the order of their creation. */
static void begin_with_spares(rank_walk *w, const uint32_t *left, uint32_t keys)
{
  for (uint32_t k = 1; k < keys; k++)
    for (uint32_t i = 0; i < left[k]; i++)
      *ARRAY_PUSH(&w->pools[k]) = new_cell(w, NO_BUFFER);
}

static void begin_with_residents(rank_walk *w)
{
  for (uint32_t b = 0; b < w->plan->residents; b++) {
    w->cell_of[b] = new_cell(w, b);
    uint32_t key = w->plan->buffers.items[b].host_key;
    if (key != 0) *ARRAY_PUSH(&w->pools[key]) = w->cell_of[b];
  }
}

/* The number of buffers that each pool has created by the end of the iteration: the most in use at
 * once. */
static uint32_t *pools_left_by(const rank_plan *p, uint32_t keys, arena *a)
{
  uint32_t *out = ARENA_ARRAY(a, uint32_t, keys), *most = ARENA_ARRAY(a, uint32_t, keys);
  for (uint32_t i = 0; p != NULL && i < p->ops.count; i++) {
    const plan_op *o = &p->ops.items[i];
    if (o->kind != OP_HOST_ALLOC && o->kind != OP_HOST_FREE) continue;
    uint32_t key = p->buffers.items[o->arg].host_key;
    if (key >= keys) continue;
    if (o->kind == OP_HOST_FREE)
      out[key]--;
    else if (++out[key] > most[key])
      most[key] = out[key];
  }
  return most;
}

void find_buffer_races(verification *v, uint32_t rank, const plan *before, arena *a)
{
  const rank_plan *p = &v->plan->ranks[rank];
  uint32_t keys = key_count(p);
  rank_walk w = { .v = v, .plan = p, .order = &v->order.ranks[rank], .rank = rank };
  w.cell_of = ARENA_ARRAY(a, uint32_t, p->buffers.count);
  w.inherited = ARENA_ARRAY(a, former_uses, p->buffers.count);
  w.returned = ARENA_ARRAY(a, former_uses, DEVICE_STREAMS);
  w.pools = ARENA_ARRAY(a, host_queue, keys);
  begin_with_spares(&w, pools_left_by(before == NULL ? NULL : &before->ranks[rank], keys, a), keys);
  begin_with_residents(&w);
  for (uint32_t i = 0; i < p->ops.count; i++)
    walk_op(&w, i);
  for (uint32_t k = 0; k < keys; k++)
    ARRAY_FREE(&w.pools[k]);
  ARRAY_FREE(&w.cells);
}
