#include "tests/unit/unread_saved.h"

#include "sim/exec/stage.h"

typedef struct reading {
  const stage *stage;
  uint32_t *copy_of; /* by buffer: what it was copied from last; itself: nothing */
  bool *read;        /* by buffer: in a backward phase, itself or a copy */
} reading;

static bool is_backward(const stage *s, uint32_t op)
{
  return s->ops_of->marks.items[s->mark_of[op]].kind == MARK_BACKWARD;
}

/* Made contiguous before it goes away, for one. */
static bool is_copy_kernel(const stage *s, const plan_op *o)
{
  if (o->kind != OP_KERNEL || o->reads != 1 || o->writes != 1) return false;
  uint8_t kind = s->plan->calls.items[o->arg].kind;
  return kind == KERNEL_COPY || kind == KERNEL_COPY_STRIDED;
}

/* And what it is a copy of. */
static void mark_read(reading *r, uint32_t buffer)
{
  for (; !r->read[buffer]; buffer = r->copy_of[buffer])
    r->read[buffer] = true;
}

static void look_at(reading *r, uint32_t op)
{
  const plan_op *o = stage_op(r->stage, op);
  bool is_read = op_works((op_kind)o->kind) && is_backward(r->stage, op);
  if (op_is_copy((op_kind)o->kind) || (!is_read && is_copy_kernel(r->stage, o))) {
    r->copy_of[stage_operand(r->stage, o, 1)] = stage_operand(r->stage, o, 0);
    return;
  }
  for (uint32_t i = 0; is_read && i < o->reads; i++)
    mark_read(r, stage_operand(r->stage, o, i));
}

uint32_t unread_saved(const plan *p, uint32_t rank, uint32_t *unread)
{
  arena a = { 0 };
  stage s = stage_new(p, rank, &a);
  uint32_t buffers = s.ops_of->buffers.count, count = 0;
  reading r = { .stage = &s,
                .copy_of = ARENA_ARRAY(&a, uint32_t, buffers),
                .read = ARENA_ARRAY(&a, bool, buffers) };
  for (uint32_t b = 0; b < buffers; b++)
    r.copy_of[b] = b;
  for (uint32_t i = 0; i < s.ops_of->ops.count; i++)
    look_at(&r, i);
  for (uint32_t b = 0; b < buffers; b++)
    if (stage_buffer(&s, b)->purpose == CLASS_SAVED && !r.read[b]) unread[count++] = b;
  arena_release(&a);
  return count;
}
