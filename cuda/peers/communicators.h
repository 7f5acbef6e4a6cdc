/*
 * The communicators of a plan.
 *
 * One for the members of a group and a stream of the plan, so that concurrent streams stay
 * concurrent. One for the messages of all streams of a pipeline that messages connect, as in a
 * framework: a rank's exchange always uses one communicator.
 */
#ifndef OFFSIM_CUDA_PEERS_COMMUNICATORS_H
#define OFFSIM_CUDA_PEERS_COMMUNICATORS_H

#include "sim/exec/executor.h"
#include "sim/exec/stage.h"

/* The purposes of communicators: the groups of comm_group, and messages. */
enum { FOR_MESSAGES = COMM_GROUPS, PURPOSES };

typedef struct communicator {
  uint32_t *ranks; /* global, in the communicator's order */
  uint32_t count;
  void *own; /* the opener's */
} communicator;

/* Opens the ranks' communicators; all processes open the same communicators in the same order.
 * NULL, or the failure. */
typedef const char *communicator_opener(void *context, communicator *c, uint32_t number);

typedef struct communicators {
  communicator *items;
  uint32_t count, capacity;
  const exec_layout *layout;
  uint32_t (*number_of)[PURPOSES][DEVICE_STREAMS]; /* [ranks]; 0: none */
  communicator_opener *open;                       /* the caller sets it, and its context */
  void *context;
} communicators;

void communicators_begin(communicators *all, const exec_layout *layout);
void communicators_release(communicators *all); /* all but `own` */
/* Opens the plan's communicators that are not open yet; `stages` as in exchange_begin. */
const char *communicators_prepare(communicators *all, const plan *p, const stage *stages);
communicator *communicators_find(const communicators *all, uint32_t rank, uint32_t purpose,
                                 uint32_t stream);
/* The rank's number in the communicator. */
uint32_t communicator_rank(const communicator *c, uint32_t rank);

#endif
