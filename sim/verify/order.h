/*
 * What must have happened before each op of a plan, in every legal timing.
 *
 * Only these order two ops: the host thread's program order (an op is issued after the previous
 * ones), FIFO streams, an event recorded and waited for, the host waiting for an event, a message,
 * which ends on neither side before both have reached it, and a collective, which ends on none of
 * its ranks before all of them have reached it. An op that the host has issued is not yet done:
 * that needs one of the others.
 *
 * A stream's ops are done in order, so one number for each stream of the rank says what is done.
 * Knowledge also travels through other ranks and back.
 *
 * One iteration after another. A chain from an op of the step before to an op of this one leaves
 * that step once: on a stream, whose first op comes after the last one of the step before, or on
 * the host thread. So it is enough to know what each stream and the host thread knew at the end of
 * a step, and which streams' beginnings an op of the next step comes after.
 */
#ifndef OFFSIM_SIM_VERIFY_ORDER_H
#define OFFSIM_SIM_VERIFY_ORDER_H

#include "sim/verify/communicators.h"

enum { DEVICE_STREAMS = STREAM_HOST };

#define NO_OP UINT32_MAX

/*
 * By stream of the rank, what is done:
 *
 *   0      nothing
 *   1      what the step before has issued to the stream: it has begun this step
 *   i + 2  also its ops up to op i; events do not count
 */
typedef struct progress {
  uint32_t done_to[DEVICE_STREAMS];
} progress;

enum { STREAM_BEGUN = 1 };

static inline uint32_t done_with(uint32_t op)
{
  return op + 2;
}

/* What is known to be done on a rank, and on all ranks. The part about the own rank is separate, because it
 * changes with every op, the others' only with messages. */
typedef struct knowledge {
  progress own;
  const progress *others; /* [rank_count], never changed once made; NULL: nothing */
} knowledge;

/* News: a bit for each stream that has begun this step, and one for ops of this step. */
#define NEWS_OF_STEP (UINT16_C(1) << DEVICE_STREAMS)

/* What is known from an op on, until the next lesson. */
typedef struct lesson {
  uint32_t from;
  knowledge knows;
} lesson;

typedef struct lesson_list {
  lesson *items; /* in order; the first is from op 0 on */
  uint32_t count;
} lesson_list;

typedef struct event_record {
  uint32_t op;
  bool is_reached;
  knowledge knows; /* what the op's stream knew then, with its own ops so far */
} event_record;

#define NO_RECORD UINT32_MAX

typedef struct event_wait {
  uint32_t op, event; /* after the gap: its name before it */
  uint16_t news; /* what the op says that was not known (NEWS_OF_STEP), if that was asked for */
} event_wait;

typedef struct rank_order {
  uint32_t streams; /* that run ops, a bit each: few of all */
  /* By stream: what is done when an op begins; for a WAIT, SEND or RECV, when it ends; the op itself does not
   * count. What it says of the stream itself may be that of earlier ops. By STREAM_HOST: what the host thread
   * knows to be done. From an op on that never begins: nothing. */
  lesson_list lessons[STREAMS];
  /* In program order; the host's waits, too. */
  event_record *records;
  event_wait *waits;
  uint32_t *messages; /* ops that send or receive */
  uint32_t record_count, wait_count, message_count;
  uint32_t *record_of; /* by event: its number in `records`, NO_RECORD */
  progress end;        /* what the compute stream and the host thread know to be done at the end */
  /* What each stream and the host thread know at the end. A stream includes what the host thread
   * knows: whatever the next step issues comes after that. Others: as above. */
  progress tail[STREAMS];
  const progress *others_tail[STREAMS];
  bool unknown;            /* an event that is waited for after the gap has no name before it */
  uint32_t stuck[STREAMS]; /* by stream, and for the host: the op that never ends, NO_OP: none */
} rank_order;

typedef struct plan_order {
  rank_order *ranks; /* [plan.rank_count] */
  communicators communicators;
} plan_order;

/* From `a`, of the ops that are not left out; with the news of waits if `news` is set. An event that is
 * waited for before it is recorded in program order orders nothing, as in CUDA. The result does not depend
 * on `threads`, at least 1. */
plan_order plan_order_new(const plan *p, const op_gap *gaps, bool news, uint32_t threads, arena *a);

/* Whether an op never ends. */
bool is_stuck(const plan_order *o, uint32_t ranks);

/* The op that records an event, NO_OP: none. */
static inline uint32_t record_op(const rank_order *o, uint32_t event)
{
  return o->record_of[event] == NO_RECORD ? NO_OP : o->records[o->record_of[event]].op;
}

/* What an op of the stream, or of STREAM_HOST, knows. */
const knowledge *known_at(const rank_order *o, uint32_t stream, uint32_t op);

/* The stream of an op, STREAM_HOST if only the host thread runs it. */
static inline uint32_t actor_stream(const plan_op *o)
{
  return op_runs_on_stream((op_kind)o->kind) ? o->stream : STREAM_HOST;
}

/* Whether the iteration builds the model: then no step comes before it, and it is not repeated. */
bool is_first_step(const rank_plan *p);

/* Whether two messages of one stream are of the same exchange, in no order among themselves. */
bool is_same_exchange(const rank_plan *r, uint32_t first, uint32_t second);

/* Whether a wait is for something that is certainly done by then anyway. Needs the news. */
bool is_implied(const rank_plan *r, const rank_order *o, const event_wait *wait);

/* Whether op `first` of the rank in a step is done when `second` begins in the step after, which
 * issues the same ops. */
bool is_done_step_before(const plan *p, const plan_order *o, uint32_t rank, uint32_t first,
                         uint32_t second);

#endif
