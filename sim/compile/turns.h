/*
 * Turns of a rank that are copied instead of walked.
 *
 *     steps   0 ....... first ............................................... count
 *             warm-up   | turn 0 | turn 1 | turn 2 | turn 3 | ...... | last |  drain
 *              walked   | walked | walked | copied | copied | copied |   walked
 *
 * The steps of each turn are those of the turn before, of later micro-batches: 1F1B has such turns between
 * its warm-up and its drain, of one forward and one backward, or with virtual stages of a group of them. What
 * a turn issues follows from its steps and from the walk's state when it begins. Once a turn begins as the
 * turn before it did, but for the names of buffers and events, each turn from here on issues what the turn
 * before has issued, with other names. A name of a turn and the name in its place a turn later:
 *
 *   taken or recorded since the turn before began    grows by what a turn takes or records
 *   others                                           that in the same place of the walk's state
 */
#ifndef OFFSIM_SIM_COMPILE_TURNS_H
#define OFFSIM_SIM_COMPILE_TURNS_H

#include "sim/compile/walk.h"
#include "sim/offload/turn_state.h"

/* How much of the rank's plan there is, or is added. */
typedef struct plan_part {
  uint32_t ops, operands, buffers, events, marks;
} plan_part;

/* The rank's plan, and the walk's state, when a turn begins. */
typedef struct turn_begin {
  turn_state state;
  plan_part plan;
  reference_array references;
} turn_begin;

typedef struct turns {
  uint32_t first, last;  /* steps: forwards, with which the first and the last turn begin */
  uint32_t steps;        /* of a turn; 0: no part of the schedule repeats, or all turns are done */
  uint32_t microbatches; /* of a turn */
  uint32_t batches;      /* of exchanges in a turn */
  uint32_t copied;       /* turns */
  uint32_t walked;       /* turns since then */
  turn_begin now, before;
} turns;

turns turns_of(const walk *w);
void turns_release(turns *t);

/* Before step `step`: copies what turns it can, and returns the step that is to be walked next. */
uint32_t turns_copy(walk *w, turns *t, uint32_t step);

#endif
