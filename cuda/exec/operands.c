/* The arguments of an op: the same tensors and call as in ref/exec/work.c, with device
 * addresses. */
#include <assert.h>
#include <inttypes.h>

#include "cuda/exec/state.h"
#include "sim/exec/layout.h"
#include "sim/exec/runs.h"

static bool check_reach(rank_run *r, const op_call *c, uint32_t i, uint32_t op)
{
  int64_t reach = view_reach(&c->views[i]) * dtype_bytes((dtype)c->views[i].dtype);
  uint32_t buffer = stage_operand(r->stage, c->op, i);
  assert(r->buffers[buffer].state != NOT_HELD && "a plan allocates what its ops use");
  if (reach <= r->buffers[buffer].bytes) return true;
  arena scratch = { 0 };
  run_wrong(r->exec, "rank %u: %s sees %" PRId64 " bytes of %s, which has %" PRId64, r->number,
            stage_op_text(r->stage, op, &scratch), reach,
            stage_buffer_text(r->stage, buffer, &scratch), r->buffers[buffer].bytes);
  arena_release(&scratch);
  return false;
}

static void fill_call(const rank_run *r, op_call *c, uint32_t op)
{
  const plan *p = r->exec->plan;
  assert(r->stage->mark_of[op] < r->stage->ops_of->marks.count);
  const plan_mark *phase = &r->stage->ops_of->marks.items[r->stage->mark_of[op]];
  c->call = (exec_call){ .reads = c->tensors,
                         .writes = c->tensors + c->op->reads,
                         .read_count = c->op->reads,
                         .write_count = c->op->writes,
                         .site = &p->sites.items[c->op->site],
                         .microbatch = phase->microbatch,
                         .is_forward = phase->kind == MARK_FORWARD,
                         .rank = &r->exec->layout->ranks[r->number],
                         .step = r->exec->step };
  if (op_is_call((op_kind)c->op->kind)) c->call.call = &p->calls.items[c->op->arg];
  assert(c->call.call == NULL || c->call.call->is_collective == (c->op->kind == OP_COLLECTIVE));
}

static void clear_call(const rank_run *r, uint32_t op, operand_room *room, op_call *c)
{
  *c = (op_call){ .op = stage_op(r->stage, op), .views = room->views, .tensors = room->tensors };
  c->count = (uint32_t)c->op->reads + c->op->writes;
  assert(c->count <= MOST_OPERANDS);
}

bool op_call_begin(rank_run *r, uint32_t op, operand_room *room, op_call *c)
{
  clear_call(r, op, room, c);
  assert(op_works((op_kind)c->op->kind));
  for (uint32_t i = 0; i < c->count; i++) {
    c->views[i] = stage_rank_view(r->stage, &r->exec->layout->ranks[r->number], c->op, i);
    if (!check_reach(r, c, i, op)) return false;
    c->tensors[i] = exec_tensor_of(op_buffer(r, c, i)->data, &c->views[i]);
  }
  fill_call(r, c, op);
  return true;
}

void op_call_shapes(const rank_run *r, uint32_t op, operand_room *room, op_call *c)
{
  clear_call(r, op, room, c);
  assert(op_is_call((op_kind)c->op->kind));
  for (uint32_t i = 0; i < c->count; i++) {
    c->views[i] = stage_view(r->stage, c->op, i);
    c->tensors[i] = exec_tensor_of(NULL, &c->views[i]);
  }
  fill_call(r, c, op);
}
