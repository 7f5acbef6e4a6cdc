/*
 * What the engine knows while it runs (engine.c): of each rank the host thread and the streams, of each
 * message its two sides, and the links. skip.c compares it with itself a turn earlier.
 */
#ifndef OFFSIM_SIM_ENGINE_STATE_H
#define OFFSIM_SIM_ENGINE_STATE_H

#include "sim/base/units.h"
#include "sim/engine/costs.h"
#include "sim/engine/engine.h"
#include "sim/engine/host_walk.h"
#include "sim/engine/lists.h"
#include "sim/engine/slowdown.h"

#define UNKNOWN INT64_MIN

/* 26 days: only an input file can ask for that. The sum of three fits in int64. */
#define TIME_LIMIT_PS CAP

/*
 * A stream and its next op. Copies wait for the links, messages for the other rank.
 *
 *            the host issues it        posted, if it is a copy or a message      it ends
 *   AHEAD ---------------------> NEXT ----------------------------------> POSTED --------> done; the next
 *                                  |                                                        one is AHEAD
 *                                  +-------------------------------------------------------> or NEXT
 *
 * AHEAD   next >= issued
 * NEXT    next <  issued, not posted
 * POSTED  next <  issued, posted, once only
 */
typedef struct stream_state {
  uint32_t next;    /* the stream's next op, issued or not; NO_OP: all are done */
  bool posted;      /* that op is queued at the links, or waits for the other side of its message */
  bool begun;       /* ... and the link has begun that copy, */
  int64_t begun_ps; /* ... then */
  int64_t free_ps;  /* the stream has done everything before it */
  int64_t held_until_ps; /* the latest event that the stream has waited for */
  uint8_t blamed;  /* plan_stream blamed for a wait for it: if it copies both ways, the last copy's
                   * direction */
  uint32_t queued; /* ring of the ops issued last, as large as the driver's queue */
  uint32_t oldest; /* index of the oldest */
} stream_state;

typedef struct message_state {
  int64_t ready_ps[2]; /* by side, sender first: when it got there; UNKNOWN: not yet */
  int64_t done_ps;
} message_state;

typedef struct rank_state {
  const rank_plan *plan;
  rank_timeline *out;
  uint32_t *following;         /* stream_lists, */
  uint32_t listed;             /* ... which have what it issues next up to this op */
  const uint32_t *recorded_by; /* stream_lists */
  const call_cost *costs;      /* by call */
  const slowdown *slowdown;    /* NULL: no op is slowed */
  const int64_t *page_lock_ps; /* by HOST_ALLOC, NULL: none costs anything */
  uint32_t host_allocs;        /* number that the host thread has passed */
  stream_state streams[DEVICE_STREAMS];
  uint8_t used[DEVICE_STREAMS]; /* streams that have ops, in the order of plan_stream */
  uint32_t used_count;
  uint32_t number;        /* of the rank */
  uint32_t issued;        /* number of ops that the host thread has passed */
  bool in_graph;          /* ... and the last of them is in a graph that is already launched */
  host_walk walk;         /* ... and what it came by */
  int64_t copied_out_ps;  /* end of the last copy to the host */
  int64_t accumulated_ps; /* accumulators' kernels beside which no kernel of compute has run */
  const host_hold *hold;  /* the next hold, at op `hold_at`; NO_OP: none is left */
  uint32_t hold_at, holds_left;
  int64_t host_ps;
  int64_t gap_from_ps,
      gap_to_ps;           /* until when compute's idle time is blamed on the host's last wait, */
  plan_stream gap_because; /* ... and for which stream it waited */
  int64_t *event_ps;       /* by event */
  uint8_t *event_stream;
  uint32_t to_run; /* streams that may go on, a bit each */
  uint32_t waits;  /* ... that wait for an event; STREAM_HOST: the host thread waits for one */
  bool runnable;
  equal_turns turns; /* those of the longest run that was left out */
} rank_state;

typedef struct engine {
  const plan *plan;
  const machine *machine;
  const rank_place *places;
  rank_state *ranks;
  message_state *messages;
  links *links;
  uint32_t runnable; /* number of ranks that can go on */
  bool too_long;     /* something ends after TIME_LIMIT_PS */
  host_costs host;
  struct turn_skip *skip; /* NULL: nothing repeats (skip.h) */
  uint32_t threads;       /* for what is done rank by rank */
} engine;

/* The times of an op that the rank can still come to, or wait for. */
static inline op_time *time_of(const rank_state *r, uint32_t op)
{
  return op_time_row(&r->out->ops, op);
}

#endif
