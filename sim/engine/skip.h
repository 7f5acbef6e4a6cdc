/*
 * Leaves out the turns of an iteration that are the same as the turn before, only later.
 *
 * The repeating part of each rank (sim/plan/repeats.h) issues the same ops turn by turn, and the engine
 * is deterministic. So once its state is that of a turn earlier, up to names and one shift of all times,
 * the next turn is the last one again, shifted, and so is every turn until a rank leaves its part. The
 * state is compared in full: host threads, streams and what is issued and not done, messages and copies
 * under way, events that a stream or a host thread will wait for, slowdowns to come. The comparison
 * leaves out only times in the past of whatever will read them: of two times the engine takes the later
 * one.
 *
 * The ops of the turns left out get the times of a turn earlier plus the shift, figures grow by what a turn
 * adds, and the engine goes on from there. All times are those of the run in full, to the picosecond.
 */
#ifndef OFFSIM_SIM_ENGINE_SKIP_H
#define OFFSIM_SIM_ENGINE_SKIP_H

#include "sim/engine/state.h"

typedef struct turn_skip turn_skip;

/* NULL: some rank's plan has no turns. The caller releases it. */
turn_skip *turn_skip_new(const engine *e, arena *a);
void turn_skip_release(turn_skip *t, uint32_t ranks);

/* Leaves out what it can. No rank is in the middle of its work: each waits, or can go on. */
void skip_turns(engine *e);

/* Of rank 0, by now. */
uint32_t turns_left_out(const turn_skip *t);

#endif
