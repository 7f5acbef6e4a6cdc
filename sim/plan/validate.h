/*
 * Structural checks of a plan that is being read, op by op in program order.
 *
 *   operands    the number and the side (device, host) that the kind of op requires; a copy fits
 *   buffers     used only between allocation and free; freed once, to the pool that they came from;
 *               a file is read only after it is written
 *   parts       that turn are equal parts of their buffer; those of class driver turn all alike, and
 *               other parts have all of them or none
 *   streams     ops of the host are in stream `host`, all others in a device stream
 *   events      waited for only if the rank records them
 *   graphs      not nested; the host does not wait inside
 *   messages    sent once and received once; both sides agree on ranks and bytes
 *
 * They do not find races and deadlocks: sim/verify does.
 */
#ifndef OFFSIM_SIM_PLAN_VALIDATE_H
#define OFFSIM_SIM_PLAN_VALIDATE_H

#include "sim/plan/plan.h"

/* The places of an op's parts in the text. */
typedef struct op_source {
  source_pos op;
  source_pos arg;             /* the buffer, event or message */
  const source_pos *operands; /* reads, then writes */
} op_source;

typedef struct pending_wait {
  uint32_t event;
  source_pos at;
} pending_wait;

typedef struct message_sides {
  source_pos at[2]; /* of the send and the receive; line 0: not seen yet */
} message_sides;

/*
 *            alloc, resident           disk_write (a file)
 *   (none) -----------------> ALIVE ----------------------> WRITTEN, which disk_read may read
 *                               |                             |
 *                               +------------ free -----------+----> DEAD, forever
 */
typedef enum buffer_state { DEAD, ALIVE, WRITTEN } buffer_state;

/* What ops have seen so far of a buffer of class driver, but for all of it. */
typedef struct seen_parts {
  int64_t
      edge; /* the first place but 0 where a part begins or ends that does not turn; 0: there is none */
  int64_t bytes;  /* of each part that turns */
  uint8_t turned; /* ranks around which they turn; 0: none turns */
} seen_parts;

typedef struct plan_validator {
  const plan *plan;
  uint32_t rank;
  struct {
    uint8_t *items;
    uint32_t count, capacity;
  } alive; /* by buffer of the rank: buffer_state */
  struct {
    seen_parts *items;
    uint32_t count, capacity;
  } parts; /* by buffer of the rank */
  struct {
    pending_wait *items;
    uint32_t count, capacity;
  } waits; /* for events that the rank has not recorded yet */
  struct {
    message_sides *items;
    uint32_t count, capacity;
  } messages;
  bool in_graph;
  source_pos graph_at; /* where the open graph begins */
  diag *d;
} plan_validator;

/* All return false after a diag error. Call them in the order of the text: */
void validate_rank_begin(plan_validator *v, uint32_t rank);
bool validate_resident(plan_validator *v, uint32_t buffer, source_pos at);
/* Before `validate_op` of a SEND or RECV, and before the table's row is written. */
bool validate_message(plan_validator *v, uint32_t id, const plan_message *says, bool receives,
                      source_pos at);
bool validate_op(plan_validator *v, const plan_op *op, const op_source *where);
bool validate_rank_end(plan_validator *v);
bool validate_plan_end(plan_validator *v);

void validator_release(plan_validator *v);

#endif
