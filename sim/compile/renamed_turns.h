/*
 * Turns that do what the turn before did, with other names: proves that two turns begin alike, and writes the
 * ops, operands, buffers and marks of those that follow.
 */
#ifndef OFFSIM_SIM_COMPILE_RENAMED_TURNS_H
#define OFFSIM_SIM_COMPILE_RENAMED_TURNS_H

#include "sim/compile/turns.h"
#include "sim/plan/repeats.h"

/* The name a turn later of each id that a turn uses. */
typedef struct renaming {
  uint32_t
      fresh; /* the first id that the turn before took: it grows by `growth`, and so do all after it */
  uint32_t growth;
  id_array later;   /* of ids before that: the one in the same place of the state, NO_ID: none */
  id_array earlier; /* of ids of the state of the turn that begins now: the reverse */
  id_array used;    /* ... of those that the turns use */
} renaming;

static inline uint32_t renamed(const renaming *r, uint32_t id)
{
  uint32_t later = id >= r->fresh ? id + r->growth : r->later.items[id];
  assert(later != NO_ID && "a turn finds an id in the walk's state");
  return later;
}

typedef struct renamed_turns {
  plan_part of_turn;
  renaming buffers, events;
  uint32_t turns;        /* that are written */
  uint32_t messages;     /* by how much the ids of messages grow in a turn */
  uint32_t microbatches; /* of a turn */
} renamed_turns;

/* Whether the turn that begins now does what the turn before did. Then `r` has names to be released. */
bool turns_are_renamed(renamed_turns *r, const walk *w, const turn_begin *before,
                       const turn_begin *now);
void renamed_turns_release(renamed_turns *r);

/* Writes `r->turns` turns, each from the turn before, brings the state of `now` to their end, and says in the
 * rank's plan that they repeat. */
void turns_write(renamed_turns *r, walk *w, const turn_begin *before, turn_begin *now);

#endif
