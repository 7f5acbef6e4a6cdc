#include "sim/engine/memory_ops.h"

#include <assert.h>

/* Where the walk through the plan is: by stream, the last op issued so far; and the last copy back. */
typedef struct issued {
  uint32_t last[STREAMS];
  uint32_t last_back;
} issued;

static void note_issued(issued *so_far, const plan_op *o, uint32_t op)
{
  assert(o->stream < STREAM_HOST);
  so_far->last[o->stream] = op;
  if (o->kind == OP_H2D) so_far->last_back = op;
}

/* The block waits for everything issued so far to the marked streams. */
static void add_uses(memory_ops *m, memory_op *returned, const issued *so_far, uint32_t streams)
{
  assert(streams >> STREAMS == 0);
  for (; streams != 0; streams &= streams - 1) {
    uint32_t stream = (uint32_t)__builtin_ctz(streams);
    *ARRAY_PUSH(&m->uses) = (memory_use){ .stream = stream, .op = so_far->last[stream] };
    returned->use_count++;
  }
}

/* A page-locked buffer without a pool is reusable when the last copy back that was issued is done; Megatron's
 * pool does not wait. */
static void add_host_use(memory_ops *m, memory_op *returned, const issued *so_far)
{
  const plan_buffer *b = &m->plan->buffers.items[returned->buffer];
  assert(b->stream == STREAM_HOST);
  if (b->purpose != CLASS_PINNED_HOST || b->host_key != 0) return;
  *ARRAY_PUSH(&m->uses) = (memory_use){ .stream = STREAM_H2D, .op = so_far->last_back };
  returned->use_count = 1;
}

/* By op_kind: 1 + memory_op_kind, or 0. */
static const uint8_t kinds[OP_KINDS] = { [OP_ALLOC] = 1 + MEMORY_TAKE,
                                         [OP_FREE] = 1 + MEMORY_RETURN,
                                         [OP_HOST_ALLOC] = 1 + MEMORY_HOST_TAKE,
                                         [OP_HOST_FREE] = 1 + MEMORY_HOST_RETURN };

memory_ops memory_ops_new(const rank_plan *p)
{
  memory_ops m = { .plan = p };
  issued so_far = { .last_back = MEMORY_NO_OP };
  for (uint32_t s = 0; s < STREAMS; s++)
    so_far.last[s] = MEMORY_NO_OP;
  ARRAY_RESERVE(&m.ops, 2 * p->buffers.count); /* each is taken and returned once */
  memory_op *to = m.ops.items;
  const plan_op *o = p->ops.items;
  for (uint32_t i = 0, count = p->ops.count; i < count; i++, o++) {
    if (kinds[o->kind] == 0) {
      if (o->stream != STREAM_HOST) note_issued(&so_far, o, i);
      continue;
    }
    *to = (memory_op){ i, o->arg, m.uses.count, 0, kinds[o->kind] - 1 };
    if (o->kind == OP_FREE && o->operands != 0) add_uses(&m, to, &so_far, o->operands);
    if (o->kind == OP_HOST_FREE) add_host_use(&m, to, &so_far);
    to++;
  }
  m.ops.count = (uint32_t)(to - m.ops.items);
  assert(m.ops.count <= 2 * p->buffers.count);
  return m;
}

void memory_ops_release(memory_ops *m)
{
  ARRAY_FREE(&m->ops);
  ARRAY_FREE(&m->uses);
}
