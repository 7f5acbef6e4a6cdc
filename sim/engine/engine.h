/*
 * The discrete-event engine: when does every op of a plan happen on a machine?
 *
 * The host thread of each rank issues its ops in program order, each at the cost of its kind. It
 * stops only to wait, when a stream's queue is full (issue.queue_ops), or when memory is refused
 * (holds.h). A stream runs what was issued to it in order. A kernel or collective takes what
 * sim/machine/call_time.h says, longer where copies or power throttling slow it (slowdown.h);
 * copies share links (links.h); a message begins when both sides have reached it. Time is integer
 * picoseconds from the beginning of the iteration.
 *
 * The result depends on plan, machine, places and holds only.
 */
#ifndef OFFSIM_SIM_ENGINE_ENGINE_H
#define OFFSIM_SIM_ENGINE_ENGINE_H

#include <stdint.h>

#include "sim/base/arena.h"
#include "sim/base/diag.h"
#include "sim/engine/holds.h"
#include "sim/engine/links.h"
#include "sim/engine/op_times.h"
#include "sim/machine/machine.h"
#include "sim/plan/plan.h"

/* A GPU's clock is found again while compute is busy for so much more of the step, in parts per million, than
 * in the times that it was found from (slowdown.h). */
enum { ENGINE_BUSIER_PPM = 5000 };

typedef struct rank_timeline {
  /* Host ops and ops without duration start and end at one time. For ALLOC, FREE, MARK: the
   * host's time. */
  op_times ops;
  int64_t end_of_rank_ps; /* end of its last op, host included */
  int64_t compute_busy_ps;
  int64_t d2h_busy_ps, h2d_busy_ps; /* busy time of the copy engines */
  int64_t waiting_slows_ps;         /* ... of both, the part that slowdowns by waiting streams added
                                     * (slowdown.h) */
  int64_t exposed_d2h_ps, exposed_h2d_ps; /* compute was idle because of a copy */
  int64_t comm_wait_ps; /* ... because of a message or collective on another stream */
} rank_timeline;

typedef struct timeline {
  uint32_t rank_count;
  rank_timeline *ranks;
  int64_t step_ps;         /* the slowest rank's end */
  uint32_t turns_left_out; /* of rank 0: their times are those of a turn earlier, later (skip.h) */
} timeline;

static inline int64_t op_start_ps(const rank_timeline *t, uint32_t op)
{
  return op_time_at(&t->ops, op).start_ps;
}

static inline int64_t op_end_ps(const rank_timeline *t, uint32_t op)
{
  return op_time_at(&t->ops, op).end_ps;
}

static inline int64_t op_taken_ps(const rank_timeline *t, uint32_t op)
{
  op_time ran = op_time_at(&t->ops, op);
  return ran.end_ps - ran.start_ps;
}

/* False after a diag error: the plan deadlocks, and the message says where. */
bool simulate(timeline *t, const plan *p, const machine *m, const rank_place *places, diag *d);
/* The same with holds of host threads; `holds`: [rank_count], NULL: none. It does not depend on `threads`,
 * at least 1. */
bool simulate_held(timeline *t, const plan *p, const machine *m, const rank_place *places,
                   const hold_list *holds, uint32_t threads, diag *d);
void timeline_release(timeline *t);

#endif
