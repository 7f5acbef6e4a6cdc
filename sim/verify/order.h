/*
 * What must have happened before each op of a plan, in every legal timing.
 *
 * Only these order two ops: the host thread's program order (an op is issued after the previous
 * ones), FIFO streams, an event recorded and waited for, the host waiting for an event, and a
 * message, which ends on neither side before both have reached it. An op that the host has issued
 * is not yet done: that needs one of the others.
 *
 * A stream's ops are done in order, so one number for each stream of the rank says what is done.
 * Knowledge also travels through other ranks and back.
 */
#ifndef OFFSIM_SIM_VERIFY_ORDER_H
#define OFFSIM_SIM_VERIFY_ORDER_H

#include <assert.h>

#include "sim/plan/plan.h"

enum { DEVICE_STREAMS = STREAM_HOST };

#define NO_OP UINT32_MAX

/* Every op of stream s of the rank with an index below done_to[s] is done; events do not count. */
typedef struct progress {
  uint32_t done_to[DEVICE_STREAMS];
} progress;

typedef struct rank_order {
  /* By op: what is done when the op begins; for a WAIT, SEND or RECV, when it ends; the op itself
   * does not count. For host ops: what the host thread knows to be done then. */
  progress *at;
  uint32_t *record_of; /* by event: the op that records it, NO_OP */
  bool *implied;       /* by op: a WAIT or HOST_WAIT for something that was certainly done
                        * already */
  progress end;        /* what the compute stream and the host thread know to be done at the end */
  uint32_t stuck;      /* the first op of the rank that never ends, NO_OP: none */
} rank_order;

typedef struct plan_order {
  rank_order *ranks; /* [plan.rank_count] */
} plan_order;

/* From `a`. An event that is waited for before it is recorded in program order orders nothing, as
 * in CUDA. */
plan_order plan_order_new(const plan *p, arena *a);

/* Whether op `first` of the rank is done when `second` begins, which a stream runs and which comes
 * later in program order. */
static inline bool is_done_before(const rank_plan *r, const rank_order *o, uint32_t first,
                                  uint32_t second)
{
  const plan_op *a = &r->ops.items[first];
  assert(first < second);
  return a->stream == r->ops.items[second].stream || o->at[second].done_to[a->stream] > first;
}

#endif
