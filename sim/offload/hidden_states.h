/*
 * The engine behind offload.system hidden_states, for every policy that moves the inputs of
 * checkpoints with it: see hidden_states.c.
 */
#ifndef OFFSIM_SIM_OFFLOAD_HIDDEN_STATES_H
#define OFFSIM_SIM_OFFLOAD_HIDDEN_STATES_H

#include "sim/offload/actions.h"

/* Copies to the host that may be under way while the next one begins: max_fwd_stash_size. */
enum { HIDDEN_STATES_STASH = 2 };

typedef struct hidden_states {
  const chunk_shape *shape;
  plan_stream stream; /* copies both ways, and owns what comes back */
  uint32_t packed;    /* of this micro-batch */
  struct {
    uint32_t entry;
    event_id copied;
  } stash[HIDDEN_STATES_STASH]; /* a ring: number q lies at q modulo its length */
} hidden_states;

/* An entry is packed, unpacked; only those that hidden_states_leave (checkpoint_inputs.h) move. */
void hidden_states_pack(hidden_states *x, walk *w, instance_id i, uint32_t entry);
void hidden_states_unpack(hidden_states *x, walk *w, instance_id i, uint32_t entry);

/* The micro-batch is done: the host waits for both streams. */
void hidden_states_finish(hidden_states *x, walk *w);

#endif
