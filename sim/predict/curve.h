/*
 * A memory curve on the time axis of the compute stream: what is allocated while a kernel runs.
 *
 * Allocations happen in program order, on the host, which may be far ahead of the GPU. A point
 * represents all allocations and frees that were issued between two ops of the compute stream; its
 * value is the highest they reached, so that no peak is lost, and its time the start of the second
 * op.
 */
#ifndef OFFSIM_SIM_PREDICT_CURVE_H
#define OFFSIM_SIM_PREDICT_CURVE_H

#include "sim/base/arena.h"
#include "sim/engine/engine.h"

typedef struct curve_point {
  int64_t at_ps;
  int64_t bytes; /* from here to the next point */
} curve_point;

/* `bytes`: after each op, as replay.h's memory_curve has it. Equal neighbours are one point. */
const curve_point *curve_on_compute(const rank_plan *p, const rank_timeline *t,
                                    const int64_t *bytes, uint32_t *count, arena *a);

/* Page-locked host memory that buffers hold, after each op. */
const int64_t *pinned_curve(const rank_plan *p, arena *a);

/* Does the op take time on its stream? */
static inline bool op_takes_time(const plan_op *o)
{
  return o->kind == OP_KERNEL || o->kind == OP_COLLECTIVE || op_is_copy((op_kind)o->kind) ||
         o->kind == OP_SEND || o->kind == OP_RECV;
}

#endif
