#include "sim/verify/buffer_walk.h"

#include <assert.h>

void report_use(rank_walk *w, finding_kind kind, uint32_t first, uint32_t second, uint32_t buffer,
                uint32_t reused, bool step_before)
{
  assert(second < w->plan->ops.count && (step_before || first <= second + 1));
  w->reported = true;
  if (w->v->errors_alone && !is_error(kind)) return;
  add_finding(w->v, (finding){ .kind = (uint8_t)kind,
                               .step_before = step_before,
                               .rank = w->rank,
                               .first = first == 0 ? NO_OP : first - 1,
                               .second = second,
                               .buffer = buffer,
                               .reused = reused });
}

bool is_on_device(const rank_walk *w, uint32_t buffer)
{
  return class_side((buffer_class)w->plan->buffers.items[buffer].purpose) == ON_DEVICE;
}

bool has_contents(const rank_walk *w, uint32_t buffer)
{
  const plan_buffer *b = &w->plan->buffers.items[buffer];
  return buffer < w->plan->residents || b->filled ||
         (is_on_device(w, buffer) && b->mark > 0 &&
          w->plan->marks.items[b->mark].kind == MARK_SETUP);
}

bool is_alive(const rank_walk *w, uint32_t buffer)
{
  const cell *c = &w->cells.items[w->cell_of[buffer]];
  return !c->freed && c->buffer == buffer;
}

uses cell_uses(rank_walk *w, const cell *c, byte_range bytes)
{
  return parts_uses(&w->parts, c->parts, bytes, w->plan);
}

static bool names(const rank_walk *w, const plan_op *o, uint32_t from, uint32_t count,
                  uint32_t buffer, byte_range bytes)
{
  const uint32_t *operands = &w->plan->operands.items[o->operands];
  for (uint32_t i = from; op_works((op_kind)o->kind) && i < from + count; i++) {
    if (operands[i] != buffer) continue;
    byte_range seen = operand_bytes(w, o, i);
    if (seen.begin < bytes.end && bytes.begin < seen.end) return true;
  }
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
    if (names(w, o, 0, o->reads, copy, whole_memory)) return false;
    if ((o->kind == OP_FREE || o->kind == OP_HOST_FREE) && o->arg == copy) return true;
  }
  return false;
}

uint32_t harmful_use(const rank_walk *w, uint32_t buffer, byte_range bytes, uint32_t use)
{
  const plan_op *ops = w->plan->ops.items;
  assert(use >= 1 && use <= w->plan->ops.count);
  uint8_t stream = ops[use - 1].stream;
  for (uint32_t i = use; i-- > 0;) {
    const plan_op *o = &ops[i];
    if ((o->kind == OP_ALLOC || o->kind == OP_HOST_ALLOC) && o->arg == buffer) return 0;
    if (o->stream == stream && names(w, o, 0, (uint32_t)o->reads + o->writes, buffer, bytes) &&
        (names(w, o, o->reads, o->writes, buffer, bytes) || !is_unread_copy(w, i)))
      return i + 1;
  }
  return 0;
}
