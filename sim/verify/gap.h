/*
 * What the verifier leaves out of a rank: ops [begin, end), which are whole turns (repeats.h). Nothing is
 * copied: ops, buffers and events keep their numbers.
 *
 *     ops    0 ...... begin ............ end ...... count
 *     ids    0 ...... before ........... after ....
 *
 * Ops after the gap go on with what there is at its begin. They use ids below `after` of the time at its end;
 * gap_name gives what had the same place at its begin.
 */
#ifndef OFFSIM_SIM_VERIFY_GAP_H
#define OFFSIM_SIM_VERIFY_GAP_H

#include "sim/plan/plan.h"
#include "sim/plan/repeats.h"

/* Of buffers, or of events. */
typedef struct gap_ids {
  const uint32_t *earlier; /* a turn earlier: of those that are taken before the first turn ends */
  uint32_t turns;          /* left out */
  uint32_t first, growth;  /* those from `first` on are of turns, whose ids grow by that much */
  uint32_t before, after;  /* [before, after) come in the gap first */
} gap_ids;

typedef struct op_gap {
  uint32_t begin, end; /* equal to the number of ops: nothing is left out */
  gap_ids buffers, events;
} op_gap;

/* By rank: nothing is left out. */
const op_gap *no_gaps(const plan *p, arena *a);

/* The gap of `turns` turns from op `begin` on. */
op_gap gap_of_turns(const rank_plan *r, uint32_t begin, uint32_t turns);

/* The id before the gap of what ops after it call `id`; NO_ID: unknown. */
uint32_t gap_earlier_name(const gap_ids *ids, uint32_t id);

/* The id of what op `op` calls `id`: as above if the op comes after the gap. */
static inline uint32_t gap_name(const op_gap *g, const gap_ids *ids, uint32_t op, uint32_t id)
{
  return op < g->end || id >= ids->after ? id : gap_earlier_name(ids, id);
}

/* The op after op `op` that is not left out. */
static inline uint32_t op_after(const op_gap *g, uint32_t op)
{
  return op + 1 == g->begin ? g->end : op + 1;
}

#endif
