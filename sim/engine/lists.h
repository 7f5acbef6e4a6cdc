/*
 * The ops of each stream as a list, and the op that records each event. In the lists a turn
 * (sim/plan/repeats.h) is any other turn, moved. The engine leaves out most turns, so a turn comes into
 * them when the rank comes to the turn.
 */
#ifndef OFFSIM_SIM_ENGINE_LISTS_H
#define OFFSIM_SIM_ENGINE_LISTS_H

#include "sim/base/arena.h"
#include "sim/plan/plan.h"

#define NO_OP UINT32_MAX

enum { DEVICE_STREAMS = STREAM_HOST };

typedef struct stream_lists {
  uint32_t first[DEVICE_STREAMS]; /* NO_OP: the stream has none */
  uint32_t *following; /* by op: the next one of its stream; NO_OP: none. Of turns: list_turns */
  const uint32_t *recorded_by; /* by event: its RECORD; NO_OP: none */
} stream_lists;

stream_lists lists_of(const rank_plan *p, arena *a);

/* Writes `following` of the turns from the one that begins at op `from` to the one that has op `to`. Returns
 * the first op after these that is not in the lists yet; ops.count: all are. */
uint32_t list_turns(uint32_t *following, const rank_plan *p, uint32_t from, uint32_t to);

#endif
