/*
 * Libraries load the code of a product or an attention when they first see its shape, and wait
 * until the GPU is idle. Once ranks wait for each other on their streams, that may never happen:
 * the rank that a stream waits for may itself be blocked in its library. So each distinct library
 * call is launched once in advance, on memory of no buffer.
 */
#include <assert.h>

#include "cuda/exec/state.h"
#include "sim/base/units.h"
#include "sim/exec/runs.h"

#ifdef OFFSIM_WITH_CUDA

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Device memory for all operands of a call: the reads, which are zeros, and the writes. */
typedef struct rehearsal {
  held_buffer read, written;
} rehearsal;

static bool is_of_library(const rank_run *r, const op_call *c)
{
  assert(c->op->kind != OP_KERNEL || c->call.call->kind < KERNEL_KINDS);
  return c->op->kind == OP_KERNEL && cuda_fast_kernels[c->call.call->kind].by_library &&
         is_fast(r, &c->call);
}

/* ---- which calls are new --------------------------------------------------------------------- */

/* Everything that a library may depend on, except addresses. */
static uint64_t print_of(const op_call *c)
{
  assert(c->op->kind == OP_KERNEL && c->count <= MOST_OPERANDS);
  const plan_call *of = c->call.call;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, &of->kind, sizeof of->kind);
  XXH3_64bits_update(&state, of->dims, sizeof of->dims);
  XXH3_64bits_update(&state, of->scalars, sizeof of->scalars);
  XXH3_64bits_update(&state, c->views, c->count * sizeof *c->views);
  return XXH3_64bits_digest(&state);
}

static bool is_new(rank_run *r, uint64_t print)
{
  for (uint32_t i = 0; i < r->rehearsed.count; i++)
    if (r->rehearsed.items[i] == print) return false;
  *ARRAY_PUSH(&r->rehearsed) = print;
  return true;
}

typedef struct op_list {
  uint32_t *items;
  uint32_t count, capacity;
} op_list;

static void keep_largest(held_buffer *area, const plan_view *v)
{
  assert(view_reach(v) >= 0 && area->data == NULL);
  area->bytes = max_i64(area->bytes, view_reach(v) * dtype_bytes((dtype)v->dtype));
}

static void find_new_calls(rank_run *r, op_list *ops, rehearsal *room)
{
  assert(ops->count == 0 && room->read.bytes == 0 && room->written.bytes == 0);
  operand_room operands;
  op_call c;
  for (uint32_t i = 0; i < r->stage->ops_of->ops.count; i++) {
    if (stage_op(r->stage, i)->kind != OP_KERNEL) continue;
    op_call_shapes(r, i, &operands, &c);
    if (!is_of_library(r, &c) || !is_new(r, print_of(&c))) continue;
    *ARRAY_PUSH(ops) = i;
    for (uint32_t k = 0; k < c.count; k++)
      keep_largest(k < c.op->reads ? &room->read : &room->written, &c.views[k]);
  }
}

/* ---- all of them once ------------------------------------------------------------------------ */

static bool area_new(rank_run *r, held_buffer *area)
{
  void *data = NULL;
  assert(area->data == NULL);
  const char *why = r->driver->allocate(&data, max_i64(area->bytes, 1));
  if (why != NULL) {
    sink_refused(&r->sink, "memory for one launch of its library's kernels: %s", why);
    return false;
  }
  area->data = data;
  return rank_ok(r, r->driver->fill(data, 0, max_i64(area->bytes, 1), r->queue.inspector));
}

static void launch_all(rank_run *r, const op_list *ops, const rehearsal *room)
{
  assert(room->read.data != NULL && room->written.data != NULL);
  operand_room operands;
  op_call c;
  for (uint32_t i = 0; i < ops->count && is_going(r); i++) {
    r->sink.at = ops->items[i];
    op_call_shapes(r, r->sink.at, &operands, &c);
    for (uint32_t k = 0; k < c.count; k++)
      c.tensors[k] =
          exec_tensor_of(k < c.op->reads ? room->read.data : room->written.data, &c.views[k]);
    kernel_issue(r, &c);
  }
  r->sink.at = NO_OP;
}

static void launch_once(rank_run *r, const op_list *ops, rehearsal *room)
{
  if (area_new(r, &room->read) && area_new(r, &room->written) &&
      rank_ok(r, r->driver->stream_synchronize(r->queue.inspector))) {
    launch_all(r, ops, room);
    (void)queue_synchronize(&r->queue);
  }
  if (room->read.data != NULL) rank_ok(r, r->driver->release(room->read.data));
  if (room->written.data != NULL) rank_ok(r, r->driver->release(room->written.data));
}

bool rehearse(rank_run *r)
{
  op_list ops = { 0 };
  rehearsal room = { 0 };
  if (r->libraries == NULL || r->exec->layout->rank_count == 1) return true;
  find_new_calls(r, &ops, &room);
  if (ops.count > 0) launch_once(r, &ops, &room);
  ARRAY_FREE(&ops);
  return is_going(r);
}

#else

bool rehearse(rank_run *r)
{
  return is_going(r);
}

#endif
