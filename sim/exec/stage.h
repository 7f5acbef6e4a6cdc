/*
 * Index of a stage's plan: queues of its streams, uses of each buffer, phases. All ranks of a stage
 * share it.
 */
#ifndef OFFSIM_SIM_EXEC_STAGE_H
#define OFFSIM_SIM_EXEC_STAGE_H

#include <assert.h>

#include "sim/exec/call.h"

enum { DEVICE_STREAMS = STREAM_HOST };

#define NO_OP     UINT32_MAX
#define NO_BUFFER UINT32_MAX

/* The last op of a stream that touches a buffer. */
typedef struct stream_use {
  uint32_t stream, last;
} stream_use;

typedef struct stage {
  const plan *plan;
  const rank_plan *ops_of;
  uint32_t first[DEVICE_STREAMS]; /* by stream: its first op, NO_OP */
  uint32_t *following;            /* by op: the next one of the same stream, NO_OP */
  uint32_t *record_of;            /* by event: the op that records it, NO_OP */
  uint32_t *mark_of;              /* by op: its phase, index into marks */
  uint32_t *mate;      /* by op, for RECV: the message that the sender sends at this position */
  int64_t *bytes;      /* by buffer: by dtypes and shapes */
  uint32_t *use_count; /* by buffer: number of operands that name it */
  bool *is_read;       /* by buffer: some op reads it */
  uint32_t *first_use; /* by buffer, and one more: its first row in `uses` */
  stream_use *uses;
} stage;

/* Of pipeline rank `number`; its arrays are in `a`, and the plan must outlive it. */
stage stage_new(const plan *p, uint32_t number, arena *a);

static inline const plan_op *stage_op(const stage *s, uint32_t op)
{
  assert(op < s->ops_of->ops.count);
  return &s->ops_of->ops.items[op];
}

static inline const plan_buffer *stage_buffer(const stage *s, uint32_t buffer)
{
  assert(buffer < s->ops_of->buffers.count);
  return &s->ops_of->buffers.items[buffer];
}

/* Operand number `i`, counting reads, then writes. */
static inline uint32_t stage_operand(const stage *s, const plan_op *op, uint32_t i)
{
  assert(i < (uint32_t)op->reads + op->writes);
  return s->ops_of->operands.items[op->operands + i];
}

/* In CUDA, waiting for an event that has not been recorded yet does nothing. */
static inline bool waits_for_nothing(const stage *s, uint32_t op)
{
  assert(stage_op(s, op)->arg < s->ops_of->events);
  uint32_t record = s->record_of[stage_op(s, op)->arg];
  return record == NO_OP || record > op;
}

static inline bool is_message(const stage *s, uint32_t op)
{
  return op != NO_OP && (stage_op(s, op)->kind == OP_SEND || stage_op(s, op)->kind == OP_RECV);
}

/* Scratch memory of a framework's kernel: no other op reads it, and offsim's kernel may not need
 * it. */
static inline bool stage_is_scratch(const stage *s, uint32_t buffer)
{
  buffer_class class = (buffer_class)stage_buffer(s, buffer)->purpose;
  return !s->is_read[buffer] && (class == CLASS_TRANSIENT || class == CLASS_WORKSPACE);
}

/* The full view of an op's operand number `i`: a whole buffer has its tensor's shape. It may turn. */
plan_view stage_view(const stage *s, const plan_op *op, uint32_t i);
/* What the rank sees of it. A copy moves the bytes of the host's part, a message the bytes that it states. */
plan_view stage_rank_view(const stage *s, const exec_rank *rank, const plan_op *op, uint32_t i);

/* "op 57 (gemm @ layer 0 mlp.linear_fc1)" */
const char *stage_op_text(const stage *s, uint32_t op, arena *a);
/* "%71 normed" */
const char *stage_buffer_text(const stage *s, uint32_t buffer, arena *a);

#endif
