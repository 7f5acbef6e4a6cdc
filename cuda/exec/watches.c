/*
 * hooks.op_done. A kernel copies what a watched op wrote to page-locked memory after the op (a copy
 * would wait for those of the offload); the hooks run at the end of the iteration. With
 * options.every_op, all ops are watched: the host waits for each and calls its hook at once; for
 * exchanges, for which other ranks may be late, before an op uses their operands.
 */
#include <assert.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"

/* Larger buffers are not kept: no watch needs them. */
#define MOST_WATCHED_BYTES MIB

enum { SLOT_ALIGNMENT = 64 };

static bool tells_ops(const rank_run *r)
{
  return r->exec->hooks.op_done != NULL;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void watch(rank_run *r, uint32_t op)
{
  op_watches *w = &r->watches;
  const plan_op *o = stage_op(r->stage, op);
  assert(w->count == 0 || w->items[w->count - 1].op < op);
  for (uint32_t i = o->reads; i < (uint32_t)o->reads + o->writes; i++) {
    uint32_t buffer = stage_operand(r->stage, o, i);
    int64_t bytes = r->stage->bytes[buffer];
    assert(bytes >= 0 && buffer < r->stage->ops_of->buffers.count);
    bool keeps = side_of(r->stage, buffer) == ON_DEVICE && bytes <= MOST_WATCHED_BYTES;
    *ARRAY_PUSH(w) = (watched_buffer){ op, buffer, NULL, keeps ? bytes : 0 };
  }
}

static bool slots_reserve(rank_run *r, int64_t bytes)
{
  op_watches *w = &r->watches;
  void *memory = NULL;
  assert(bytes >= 0 && bytes % SLOT_ALIGNMENT == 0);
  if (bytes <= w->memory_bytes) return true;
  if (w->memory != NULL && !rank_ok(r, r->driver->release_pinned(w->memory))) return false;
  w->memory = NULL;
  const char *why = r->driver->allocate_pinned(&memory, bytes);
  if (why != NULL) sink_refused(&r->sink, "no page-locked memory for results: %s", why);
  w->memory = memory;
  w->memory_bytes = why == NULL ? bytes : 0;
  return why == NULL;
}

void watches_prepare(rank_run *r)
{
  const exec_hooks *hooks = &r->exec->hooks;
  op_watches *w = &r->watches;
  assert(w->telling == NO_OP);
  w->count = 0;
  w->telling = NO_OP;
  if (!tells_ops(r) || r->exec->options.every_op || hooks->watches == NULL) return;
  for (uint32_t op = 0; op < r->stage->ops_of->ops.count; op++)
    if (op_works((op_kind)stage_op(r->stage, op)->kind) &&
        hooks->watches(hooks->context, r->number, op))
      watch(r, op);
  int64_t bytes = 0;
  if (!is_here(r)) return;
  for (uint32_t i = 0; i < w->count; i++)
    bytes += round_up(w->items[i].bytes, SLOT_ALIGNMENT);
  if (!slots_reserve(r, bytes)) return;
  unsigned char *next = w->memory;
  for (uint32_t i = 0; i < w->count; i++) {
    w->items[i].data = w->items[i].bytes > 0 ? next : NULL;
    next += round_up(w->items[i].bytes, SLOT_ALIGNMENT);
  }
  assert(next == w->memory + bytes && bytes <= w->memory_bytes);
}

void watches_release(rank_run *r)
{
  assert(r->watches.telling == NO_OP);
  if (r->watches.memory != NULL) (void)r->driver->release_pinned(r->watches.memory);
  ARRAY_FREE(&r->watches);
  ARRAY_FREE(&r->watches.pending);
}

/* The first row of an op or of a later one. */
static uint32_t first_row(const op_watches *w, uint32_t op)
{
  uint32_t low = 0, high = w->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (w->items[middle].op < op)
      low = middle + 1;
    else
      high = middle;
  }
  assert(low == w->count || w->items[low].op >= op);
  assert(low == 0 || w->items[low - 1].op < op);
  return low;
}

static void keep_results(rank_run *r, uint32_t op)
{
  assert(!r->exec->options.every_op && op < r->stage->ops_of->ops.count);
  const op_watches *w = &r->watches;
  gpu_stream *stream = r->queue.streams[stage_op(r->stage, op)->stream];
  for (uint32_t i = first_row(w, op); i < w->count && w->items[i].op == op; i++) {
    const watched_buffer *b = &w->items[i];
    if (b->data != NULL)
      rank_ok(r, copy_by_kernel(r->exec->collectives, b->data, r->buffers[b->buffer].data, b->bytes,
                                stream));
  }
}

void *watched_data(const rank_run *r, uint32_t buffer)
{
  const op_watches *w = &r->watches;
  assert(w->telling != NO_OP);
  for (uint32_t i = first_row(w, w->telling); i < w->count && w->items[i].op == w->telling; i++)
    if (w->items[i].buffer == buffer) return w->items[i].data;
  return NULL;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell(rank_run *r, uint32_t op)
{
  cuda_exec *e = r->exec;
  pthread_mutex_lock(&e->hook_lock);
  assert(r->watches.telling == NO_OP && "no two hooks run at once");
  r->watches.telling = op;
  e->hooks.op_done(e->hooks.context, r->number, op, (exec_fingerprint){ 0 });
  r->watches.telling = NO_OP;
  pthread_mutex_unlock(&e->hook_lock);
}

static void wait_and_tell(rank_run *r, uint32_t op)
{
  assert(r->exec->options.every_op && stage_op(r->stage, op)->kind != OP_SEND);
  gpu_stream *stream = r->queue.streams[stage_op(r->stage, op)->stream];
  if (rank_ok(r, r->driver->stream_synchronize(stream)) && is_going(r)) tell(r, op);
}

static bool is_exchange(const rank_run *r, uint32_t op)
{
  return is_message(r->stage, op) || stage_op(r->stage, op)->kind == OP_COLLECTIVE;
}

void watches_issued(rank_run *r, uint32_t op)
{
  if (!tells_ops(r)) return;
  assert(op_works((op_kind)stage_op(r->stage, op)->kind));
  if (!r->exec->options.every_op)
    keep_results(r, op);
  else if (stage_op(r->stage, op)->kind == OP_SEND)
    tell(r, op); /* it wrote nothing */
  else if (is_exchange(r, op))
    *ARRAY_PUSH(&r->watches.pending) = op;
  else
    wait_and_tell(r, op);
}

static bool has_operand(const rank_run *r, uint32_t op, uint32_t buffer)
{
  const plan_op *o = stage_op(r->stage, op);
  for (uint32_t i = 0; i < (uint32_t)o->reads + o->writes; i++)
    if (stage_operand(r->stage, o, i) == buffer) return true;
  return false;
}

static bool touches(const rank_run *r, uint32_t op, uint32_t told)
{
  assert(told < op && is_exchange(r, told));
  const plan_op *o = stage_op(r->stage, op);
  if (o->kind == OP_FREE || o->kind == OP_HOST_FREE) return has_operand(r, told, o->arg);
  for (uint32_t i = 0; op_works((op_kind)o->kind) && i < (uint32_t)o->reads + o->writes; i++)
    if (has_operand(r, told, stage_operand(r->stage, o, i))) return true;
  return false;
}

void watches_before(rank_run *r, uint32_t op)
{
  op_watches *w = &r->watches;
  assert(w->pending.count == 0 || r->exec->options.every_op);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < w->pending.count; i++) {
    uint32_t late = w->pending.items[i];
    if (touches(r, op, late) && is_going(r))
      wait_and_tell(r, late);
    else
      w->pending.items[kept++] = late;
  }
  assert(kept <= w->pending.count);
  w->pending.count = kept;
}

void watches_tell(rank_run *r)
{
  op_watches *w = &r->watches;
  assert(w->telling == NO_OP && (w->count == 0 || w->pending.count == 0));
  for (uint32_t i = 0; i < w->count; i++)
    if (i == 0 || w->items[i].op != w->items[i - 1].op) tell(r, w->items[i].op);
  for (uint32_t i = 0; i < w->pending.count; i++)
    tell(r, w->pending.items[i]);
  w->pending.count = 0;
}
