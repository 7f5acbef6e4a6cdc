#include "sim/plan/plan.h"

#include <assert.h>
#include <string.h>

/* The text name of each row, from the tables of plan.h. */
#define NAME_OF(function, type, ROWS, limit)                                                       \
  const char *function(type which)                                                                 \
  {                                                                                                \
    static const char *const names[] = { ROWS(X) };                                                \
    assert((unsigned)which < limit);                                                               \
    return names[which];                                                                           \
  }

#define X(id, name, ...) name,
NAME_OF(op_name, op_kind, PLAN_OPS, OP_KINDS)
NAME_OF(stream_name, plan_stream, PLAN_STREAMS, STREAMS)
NAME_OF(class_name, buffer_class, PLAN_CLASSES, BUFFER_CLASSES)
NAME_OF(dtype_name, dtype, PLAN_DTYPES, DTYPES)
NAME_OF(group_name, comm_group, PLAN_GROUPS, COMM_GROUPS)
NAME_OF(mark_name, mark_kind, PLAN_MARKS, MARK_KINDS)
NAME_OF(kernel_name, kernel_kind, PLAN_KERNELS, KERNEL_KINDS)
NAME_OF(collective_name, collective_kind, PLAN_COLLECTIVES, COLLECTIVE_KINDS)
#undef X

buffer_side class_side(buffer_class class)
{
#define X(id, name, meaning, side) side,
  static const buffer_side sides[] = { PLAN_CLASSES(X) };
#undef X
  assert((unsigned)class < BUFFER_CLASSES);
  return sides[class];
}

int64_t dtype_bytes(dtype type)
{
#define X(id, name, bytes) bytes,
  static const int64_t sizes[] = { PLAN_DTYPES(X) };
#undef X
  assert((unsigned)type < DTYPES);
  return sizes[type];
}

plan plan_new(uint32_t rank_count, arena *a)
{
  plan p = { .rank_count = rank_count, .names = a };
  p.ranks = ARENA_ARRAY(a, rank_plan, rank_count);
  *ARRAY_PUSH(&p.sites) = (plan_site){ .module = "", .layer = -1 };
  for (uint32_t r = 0; r < rank_count; r++)
    *ARRAY_PUSH(&p.ranks[r].marks) = (plan_mark){ 0 };
  return p;
}

static void rank_release(rank_plan *r)
{
  ARRAY_FREE(&r->ops);
  ARRAY_FREE(&r->operands);
  ARRAY_FREE(&r->buffers);
  ARRAY_FREE(&r->marks);
}

void plan_release(plan *p)
{
  for (uint32_t r = 0; r < p->rank_count; r++)
    rank_release(&p->ranks[r]);
  ARRAY_FREE(&p->calls);
  ARRAY_FREE(&p->sites);
  ARRAY_FREE(&p->tensors);
  ARRAY_FREE(&p->messages);
}

uint32_t plan_call_row(plan *p, const plan_call *call)
{
  for (uint32_t i = 0; i < p->calls.count; i++)
    if (memcmp(&p->calls.items[i], call, sizeof *call) == 0)
      return i;
  *ARRAY_PUSH(&p->calls) = *call;
  return p->calls.count - 1;
}
