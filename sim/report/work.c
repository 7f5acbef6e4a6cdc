#include "sim/report/work.h"

#include "sim/base/text.h"

const char *const paint_names[PAINTS] = {
  [PAINT_FORWARD] = "forward",        [PAINT_BACKWARD] = "backward",
  [PAINT_RECOMPUTE] = "recompute",    [PAINT_REDUCTION] = "after the last backward",
  [PAINT_OPTIMIZER] = "optimizer",    [PAINT_COMM] = "communication",
  [PAINT_D2H] = "copies to the host", [PAINT_H2D] = "copies from the host",
};

/* ---- which colour ---- */

/* In a backward phase, kernels of the forward direction compute again. Kernels of no direction (a
 * GEMM) belong to them where they are between two of them. */
typedef enum direction { NO_DIRECTION, IN_FORWARD, IN_BACKWARD } direction;

static direction direction_of(const plan *p, const plan_op *o)
{
  if (o->kind != OP_KERNEL) return NO_DIRECTION;
  const plan_call *call = &p->calls.items[o->arg];
  const char *name = kernel_name((kernel_kind)call->kind);
  return ends_with(name, "_forward")    ? IN_FORWARD
         : ends_with(name, "_backward") ? IN_BACKWARD
                                        : NO_DIRECTION;
}

/* By op: it is between two kernels of the forward direction, or is one. */
static bool *between_forwards(const plan *p, const rank_plan *ops, arena *a)
{
  bool *between = ARENA_ARRAY(a, bool, ops->ops.count);
  uint32_t from = UINT32_MAX;
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    const plan_op *o = &ops->ops.items[i];
    direction d = direction_of(p, o);
    if (d == IN_FORWARD)
      for (uint32_t k = from == UINT32_MAX ? i : from; k <= i; k++)
        between[k] = true;
    if (d == IN_FORWARD)
      from = i;
    else if (d == IN_BACKWARD || o->kind == OP_MARK)
      from = UINT32_MAX;
  }
  return between;
}

static paint paint_of_phase(mark_kind phase, bool forward)
{
  switch (phase) {
  case MARK_BACKWARD: return forward ? PAINT_RECOMPUTE : PAINT_BACKWARD;
  case MARK_FINISH: return PAINT_REDUCTION;
  case MARK_OPTIMIZER: return PAINT_OPTIMIZER;
  case MARK_SETUP:
  case MARK_FORWARD:
  case MARK_KINDS: break;
  }
  return PAINT_FORWARD;
}

static paint paint_of(const plan_op *o, mark_kind phase, bool forward)
{
  switch ((op_kind)o->kind) {
  case OP_D2H:
  case OP_DISK_WRITE: return PAINT_D2H;
  case OP_H2D:
  case OP_DISK_READ: return PAINT_H2D;
  case OP_COLLECTIVE:
  case OP_SEND:
  case OP_RECV: return PAINT_COMM;
  case OP_MARK:
  case OP_ALLOC:
  case OP_FREE:
  case OP_HOST_ALLOC:
  case OP_HOST_FREE:
  case OP_KERNEL:
  case OP_RECORD:
  case OP_WAIT:
  case OP_HOST_WAIT:
  case OP_HOST_READ:
  case OP_HOST_WORK:
  case OP_GRAPH_BEGIN:
  case OP_GRAPH_END:
  case OP_KINDS: break;
  }
  return paint_of_phase(phase, forward);
}

const paint *op_paints(const plan *p, uint32_t rank, arena *a)
{
  const rank_plan *ops = &p->ranks[rank];
  const bool *forward = between_forwards(p, ops, a);
  paint *paints = ARENA_ARRAY(a, paint, ops->ops.count);
  mark_kind phase = MARK_SETUP;
  for (uint32_t i = 0; i < ops->ops.count; i++) {
    const plan_op *o = &ops->ops.items[i];
    if (o->kind == OP_MARK) phase = (mark_kind)ops->marks.items[o->arg].kind;
    paints[i] = paint_of(o, phase, forward[i]);
  }
  return paints;
}
