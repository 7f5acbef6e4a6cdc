/*
 * The inputs of checkpoints: the first tensor that a checkpoint keeps for its recomputation, which
 * is the layer's input; and the engine of offload.system hidden_states (hidden_states.c), which
 * other systems use too.
 */
#ifndef OFFSIM_SIM_OFFLOAD_HIDDEN_STATES_H
#define OFFSIM_SIM_OFFLOAD_HIDDEN_STATES_H

#include "sim/offload/actions.h"
#include "sim/offload/theory.h"

/* The non-reentrant engine does not move smaller inputs (axolotl's min_offload_size). */
#define HIDDEN_STATES_MIN_BYTES 1024

/* Inputs of one checkpoint are consecutive, and every layer is a separate group. A non-reentrant
 * checkpoint first saves an empty tensor, only to have a saved tensor. */
static inline bool is_hidden_states(const chunk_shape *c, uint32_t entry)
{
  const saved_entry *e = &c->entries[entry], *before = e - 1;
  bool follows = before->checkpoint_input && before->group == e->group && before->bytes > 0;

  return e->checkpoint_input && e->group != 0 && e->bytes > 0 && !follows;
}

static inline bool hidden_states_leave(const chunk_shape *c, uint32_t entry)
{
  return is_hidden_states(c, entry) && c->entries[entry].bytes >= HIDDEN_STATES_MIN_BYTES;
}

/* Number of hidden states that are saved after this one. */
static inline uint32_t hidden_states_newer(const chunk_shape *c, uint32_t entry)
{
  assert(entry < c->entry_count);
  uint32_t newer = 0;

  for (uint32_t e = entry + 1; e < c->entry_count; e++)
    newer += is_hidden_states(c, e);
  return newer;
}

/* Copies to the host that may be in flight when the next one begins: max_fwd_stash_size. */
enum { HIDDEN_STATES_STASH = 2 };

typedef struct hidden_states {
  const chunk_shape *shape;
  plan_stream stream; /* copies both ways, and owns the reloaded memory */
  uint32_t packed;    /* number in this micro-batch */
  struct {
    uint32_t entry;
    event_id copied;
  } stash[HIDDEN_STATES_STASH]; /* a ring: number q is at q modulo its length */
} hidden_states;

/* Call these when an entry is packed or unpacked; only those that hidden_states_leave accepts
 * move. */
void hidden_states_pack(hidden_states *x, walk *w, instance_id i, uint32_t entry);
void hidden_states_unpack(hidden_states *x, walk *w, instance_id i, uint32_t entry);

/* Ends the micro-batch: the host waits for both streams. */
void hidden_states_finish(hidden_states *x, walk *w);

/* The entries that leave: all but the newest. */
bool hidden_states_theory(const offload_theory *t, const chunk_shape *c, uint32_t entry);

/* The condition of all systems that move hidden states. False after a diag error. */
bool hidden_states_need_checkpoints(const settings *s, diag *d);

#endif
