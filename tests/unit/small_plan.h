/* For tests of the engine: plans made by hand, op by op. */
#ifndef OFFSIM_TESTS_UNIT_SMALL_PLAN_H
#define OFFSIM_TESTS_UNIT_SMALL_PLAN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* Appends an op; returns its index. */
static inline uint32_t add_op(rank_plan *r, op_kind kind, plan_stream stream, uint32_t arg)
{
  *ARRAY_PUSH(&r->ops) = (plan_op){ .kind = (uint8_t)kind, .stream = (uint8_t)stream, .arg = arg };
  return r->ops.count - 1;
}

static inline uint32_t add_buffer(rank_plan *r, int64_t bytes, plan_stream pool)
{
  *ARRAY_PUSH(&r->buffers) =
      (plan_buffer){ .bytes = bytes,
                     .purpose = pool == STREAM_HOST ? CLASS_PINNED_HOST : CLASS_TRANSIENT,
                     .stream = (uint8_t)pool };
  return r->buffers.count - 1;
}

/* A memory-bound kernel that takes `ps` on machine `ideal` (multiples of 1000). */
static inline uint32_t add_kernel(plan *p, uint32_t rank, plan_stream stream, int64_t ps)
{
  plan_call call;
  memset(&call, 0, sizeof call);
  call.kind = KERNEL_ELEMENTWISE;
  call.dtype = DTYPE_BF16;
  call.bytes = 4 * ps; /* 4 000 000 bytes each microsecond */
  return add_op(&p->ranks[rank], OP_KERNEL, stream, plan_call_row(p, &call));
}

/* An all-gather of two ranks of a host, `bytes` from each. */
static inline uint32_t add_gather(plan *p, uint32_t rank, plan_stream stream, int64_t bytes)
{
  plan_call call;
  memset(&call, 0, sizeof call);
  call.kind = COLLECTIVE_ALL_GATHER;
  call.dtype = DTYPE_BF16;
  call.is_collective = true;
  call.bytes = bytes;
  call.group_size = 2;
  call.group_stride = 1;
  return add_op(&p->ranks[rank], OP_COLLECTIVE, stream, plan_call_row(p, &call));
}

/* A copy that takes `ps` on machine `ideal` when it is alone (multiples of 1000). */
static inline uint32_t add_copy(rank_plan *r, op_kind kind, plan_stream stream, int64_t ps)
{
  uint32_t host = add_buffer(r, ps / 20, STREAM_HOST); /* 50 000 bytes each microsecond */
  uint32_t device = add_buffer(r, ps / 20, STREAM_COMPUTE);
  uint32_t op = add_op(r, kind, stream, 0);
  r->ops.items[op].operands = r->operands.count;
  r->ops.items[op].reads = r->ops.items[op].writes = 1;
  *ARRAY_PUSH(&r->operands) = kind == OP_D2H ? device : host;
  *ARRAY_PUSH(&r->operands) = kind == OP_D2H ? host : device;
  return op;
}

/* An event recorded on one stream. */
static inline uint32_t add_record(rank_plan *r, plan_stream stream)
{
  add_op(r, OP_RECORD, stream, r->events);
  return r->events++;
}

/* Stream `waiting` goes on after all that was issued on `on` so far. */
static inline void add_join(rank_plan *r, plan_stream waiting, plan_stream on)
{
  uint32_t event = add_record(r, on);
  add_op(r, OP_WAIT, waiting, event);
}

/* A message that takes `ps` on machine `ideal` between ranks of one host (multiples of 1000). */
static inline uint32_t add_message(plan *p, uint32_t from, uint32_t to, int64_t ps)
{
  *ARRAY_PUSH(&p->messages) =
      (plan_message){ .from_rank = from, .to_rank = to, .bytes = ps * 2 / 5 };
  return p->messages.count - 1;
}

static inline machine *ideal_machine(arena *a)
{
  diag d = { 0 };
  machine *m = ARENA_NEW(a, machine);
  *m = *machine_load(a, "ideal", &d);
  return m;
}

#endif
