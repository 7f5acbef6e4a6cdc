/*
 * Decides whether a plan is safe in every legal timing.
 *
 * docs/reference/verifier.md describes the rules: happens-before (order.h); the caching allocator's
 * blocks (a block returns to the pool of its stream when its last reference dies; the streams that
 * record_stream named delay its reuse, another stream's use does not); the pool of host buffers
 * (first freed first reused, at once); matched messages and collectives; and the same step again,
 * as soon as the host thread has issued this one. Control flow is the plan's: it does not depend on
 * data.
 */
#ifndef OFFSIM_SIM_VERIFY_VERIFY_H
#define OFFSIM_SIM_VERIFY_VERIFY_H

#include "sim/verify/order.h"

/*   finding   severity   meaning: first and second are the two ops */
/* clang-format off */
#define VERIFY_FINDINGS(X)                                                                                              \
  X(READ_BEFORE_WRITE,   "read_before_write",   ERROR,   "the second reads what the first writes and does not wait for it")           \
  X(WRITE_BEFORE_READ,   "write_before_read",   ERROR,   "the second overwrites what the first reads and does not wait for it")       \
  X(WRITE_BEFORE_WRITE,  "write_before_write",  ERROR,   "both write, and the second does not wait for the first")                    \
  X(NEVER_WRITTEN,       "never_written",       ERROR,   "the op reads what nothing has written")                                 \
  X(BLOCK_REUSED,        "block_reused",        ERROR,   "the second may get the block of the first and does not wait for it: record_stream or a wait is missing") \
  X(HOST_BUFFER_REUSED,  "host_buffer_reused",  ERROR,   "the second gets the host buffer that the first may still use")              \
  X(FREED_IN_USE,        "freed_in_use",        ERROR,   "the second removes a file that the first may still use") \
  X(WAIT_BEFORE_RECORD,  "wait_before_record",  ERROR,   "the event is recorded later or never, so that the wait does nothing")       \
  X(DEADLOCK,            "deadlock",            ERROR,   "the ops wait for each other and never end")                                 \
  X(MISSING_COLLECTIVE,  "missing_collective",  ERROR,   "a rank of the communicator never issues the collective, so that it never ends") \
  X(MISMATCHED_COLLECTIVES, "mismatched_collectives", ERROR, "two ranks issue the collectives of a communicator in different orders")  \
  X(MISMATCHED_MESSAGES, "mismatched_messages", ERROR,   "two ranks exchange messages in different orders")                           \
  X(LEAK,                "leak",                ERROR,   "a steady iteration ends with a buffer that it did not begin with")          \
  X(NEVER_REUSABLE,      "never_reusable",      WARNING, "a block waits for a stream that nothing waits for")                         \
  X(OVERWRITTEN_COPY,    "overwritten_copy",    ADVICE,  "the second overwrites what the first copies and does not wait for it; nothing reads the copy") \
  X(USELESS_MARK,        "useless_record_stream", ADVICE, "the named stream has nothing left to do with the block")                   \
  X(IMPLIED_WAIT,        "redundant_wait",      ADVICE,  "the wait is for something that is already done")                                 \
  X(UNUSED_EVENT,        "unused_event",        ADVICE,  "nothing waits for the event")
/* clang-format on */

typedef enum finding_severity {
  SEVERITY_ERROR,
  SEVERITY_WARNING,
  SEVERITY_ADVICE,
  SEVERITIES
} finding_severity;

#define X(name, ...) FINDING_##name,
typedef enum finding_kind { VERIFY_FINDINGS(X) FINDING_KINDS } finding_kind;
#undef X

/* A place where the plan breaks a rule. */
typedef struct finding {
  uint8_t kind;
  uint8_t stream;   /* USELESS_MARK, NEVER_REUSABLE: the named stream */
  bool step_before; /* `first` is an op of the step before, which issued the same ops */
  uint32_t rank;
  uint32_t first;  /* op, NO_OP: none */
  uint32_t second; /* op of the same rank; DEADLOCK, MISSING_COLLECTIVE: what is stuck */
  uint32_t buffer; /* the first op's buffer, NO_BUFFER: none */
  uint32_t reused; /* BLOCK_REUSED, HOST_BUFFER_REUSED: the second op's buffer */
  uint32_t places, place_count; /* of verification.places */
} finding;

/*
 * Ops of other ranks that a finding is about:
 *
 *   DEADLOCK                the cycle: each waits for the next, the last for the first
 *   MISSING_COLLECTIVE      the rank that never issues it, op NO_OP
 *   MISMATCHED_COLLECTIVES  the op that the other rank issues at this turn
 */
typedef struct finding_place {
  uint32_t rank, op;
} finding_place;

typedef struct finding_place_array {
  finding_place *items;
  uint32_t count, capacity;
} finding_place_array;

#define NO_BUFFER UINT32_MAX

typedef struct finding_array {
  finding *items;
  uint32_t count, capacity;
} finding_array;

typedef struct verification {
  const plan *plan;
  const op_gap *gaps; /* [plan.rank_count]: what is left out of each rank */
  plan_order order;
  const byte_range *seen;  /* by row of plan.views, as bytes_of_views (parts.h) */
  const byte_range *turns; /* the same of buffers of class driver; NULL: no view turns */
  finding_array findings;  /* by rank, those within a step first, by place of the second op */
  finding_place_array places;
  /* Messages and collectives whose other side the plan does not have: assumed to come. */
  uint64_t assumed;
  bool errors_alone; /* warnings and advice are not looked for */
  bool stuck;        /* some op never ends */
  uint64_t counts[SEVERITIES];
  bool safe; /* no error */
} verification;

/* `before`: the previous iteration, which left its pools of host buffers, or NULL: none. The result does
 * not depend on `threads`, at least 1. The order that findings refer to is in `a`; release the
 * verification too. */
void verify_plan(verification *v, const plan *p, const plan *before, uint32_t threads, arena *a);
/* The same, but its errors alone: most that can be said of a safe plan is advice. */
void verify_errors(verification *v, const plan *p, const plan *before, uint32_t threads, arena *a);
void verification_release(verification *v);

/* The first error alone, which ends with the first rank that has one. False: the plan is safe. */
bool plan_first_error(finding *first, const plan *p, const plan *before);
static inline bool plan_is_safe(const plan *p, const plan *before)
{
  finding first;
  return !plan_first_error(&first, p, before);
}

/* Whether the plan without most of its turns shows that it has no errors (cut.h). False: it does not say. The
 * functions above ask it before they look for errors alone. */
bool plan_is_safe_by_turns(const plan *p, const plan *before, uint32_t threads);

const char *finding_name(finding_kind kind);
const char *finding_meaning(finding_kind kind);
finding_severity finding_severity_of(finding_kind kind);
const char *severity_name(finding_severity severity);

#endif
