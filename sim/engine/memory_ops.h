/*
 * The ops of a rank that take or return memory, in program order: what a replay walks, several times, and
 * half of a plan's ops. What a returned block waits for follows from the plan alone. And the few ops, found
 * by the same walk, that figures other than the allocators' come from.
 */
#ifndef OFFSIM_SIM_ENGINE_MEMORY_OPS_H
#define OFFSIM_SIM_ENGINE_MEMORY_OPS_H

#include <stdint.h>

#include "sim/base/units.h"
#include "sim/memory/free_bins.h"
#include "sim/plan/plan.h"

typedef enum memory_op_kind {
  MEMORY_TAKE,
  MEMORY_RETURN,
  MEMORY_HOST_TAKE,
  MEMORY_HOST_RETURN
} memory_op_kind;

/* No op has been issued. */
#define MEMORY_NO_OP UINT32_MAX

/* A returned block waits for the last op that was issued to a stream. */
typedef struct memory_use {
  uint32_t stream; /* plan_stream */
  uint32_t op;     /* MEMORY_NO_OP: nothing to wait for */
} memory_use;

typedef struct memory_op {
  int64_t bytes;      /* of the buffer, rounded up as blocks are */
  uint32_t op;        /* in the rank's plan */
  uint32_t buffer;    /* both of the turn that is listed (memory_ops) */
  uint32_t first_use; /* of the `use_count` rows of `uses` that a returned block waits for */
  uint16_t bin;       /* of the device's allocator (free_bins.h) */
  uint8_t use_count;
  uint8_t kind; /* memory_op_kind */
} memory_op;

/* The op takes the buffer, or returns it and waits for nothing. */
static inline memory_op memory_op_of(const plan_buffer *b, uint32_t buffer, uint32_t op,
                                     memory_op_kind kind)
{
  int64_t bytes = b->purpose == CLASS_DRIVER ? 0 : round_up(b->bytes, ALLOCATOR_ROUNDING_BYTES);
  return (memory_op){ .bytes = bytes,
                      .op = op,
                      .buffer = buffer,
                      .bin = (uint16_t)free_bin_of(pool_of_request(b->stream, bytes), bytes),
                      .kind = (uint8_t)kind };
}

/*
 * Of a plan that must outlive it. Empty when zeroed.
 *
 * Turns that repeat (sim/plan/repeats.h) are listed up to the first that returns nothing of the warm-up's, if
 * it returns as many buffers as it takes. Later turns have its rows, with larger numbers of ops and buffers,
 * and leave what it leaves, with larger numbers:
 *
 *     rows  0 ............. turn ........ turn_end ... count
 *           |<----- stretch 0 ------->|
 *                            |<-- 1 -->|
 *                            |<-- .. ->|
 *                                      |<-- last -->|
 */
typedef struct memory_ops {
  const rank_plan *plan;
  struct {
    memory_op *items;
    uint32_t count, capacity;
  } ops;
  int64_t requested_peak_bytes; /* with the residents */
  uint32_t turn, turn_end;      /* rows of the last turn that is listed */
  uint32_t later_turns;         /* ... and how many follow */
  struct {
    memory_use *items;
    uint32_t count, capacity;
  } uses;
  id_array counted; /* in the rank's plan: copies, arithmetic of the host, its memory, and marks */
} memory_ops;

/* Rows whose ops and buffers have numbers that are larger by so much. */
typedef struct memory_stretch {
  const memory_op *from, *end;
  uint32_t ops, buffers;
} memory_stretch;

static inline uint32_t memory_stretches(const memory_ops *m)
{
  return m->later_turns + 2;
}

static inline memory_stretch memory_stretch_of(const memory_ops *m, uint32_t i)
{
  const memory_op *rows = m->ops.items;
  if (i == 0) return (memory_stretch){ .from = rows, .end = rows + m->turn_end };
  if (i > m->later_turns)
    return (memory_stretch){ .from = rows + m->turn_end, .end = rows + m->ops.count };
  return (memory_stretch){ .from = rows + m->turn,
                           .end = rows + m->turn_end,
                           .ops = i * m->plan->repeat.ops,
                           .buffers = i * m->plan->repeat.buffers };
}

/* The op that a row's block waits for. */
static inline uint32_t memory_use_op(const memory_ops *m, const memory_stretch *of,
                                     const memory_use *use)
{
  bool is_of_turn = use->op >= m->plan->repeat.first && use->op != MEMORY_NO_OP;
  return is_of_turn ? use->op + of->ops : use->op;
}

memory_ops memory_ops_new(const rank_plan *p);
void memory_ops_release(memory_ops *m);

#endif
