/*
 * A plan with turns left out: if what the verifier knows at the end of a turn is at least as good as what it
 * knew a turn earlier, up to names, then the same turn again (repeats.h) finds nothing new.
 *
 *     the plan       warm-up | turn | turn | turn | turn | turn | ..... | turn | drain
 *     shortened      warm-up | turn | turn | turn | drain
 *                                                 ^ cut
 *
 * Each rank has a cut, somewhere among its turns. Of each message both sides come before their ranks' cuts,
 * or neither, and no exchange is cut in two; the same holds a turn before the cuts. So what comes before the
 * cuts waits for nothing that comes after. All ranks leave out equally many turns, and the ids after the cut
 * are those of as many turns earlier: the drain works on what is alive at the cut.
 *
 * The verifier copies numbers of ops, takes the later one of two, and asks whether a use is known to be done:
 * whether one number is at least another. Let F be a growing function from the numbers of ops before a turn
 * to those a turn later, which adds the turn's length from that turn on. If after the turn
 *
 *   each last use of some memory is at most F of the one in its place a turn earlier, and
 *   each number up to which ops are known to be done is at least F of the one a turn earlier,
 *
 * then the next turn, whose ops are the same, asks the same questions, gets the same answer "done", and ends
 * in a state for which both hold again. So do all turns, and the drain. Such a function exists
 * if each use that is at most a known number is, a turn later, at most what that number has become (moves).
 * The proof compares
 *
 *   order     what each stream and the host thread know, and the events that have been recorded and are still
 *             waited for, of other ranks, too: all that ops after the cut can learn
 *   buffers   all that the walk over a rank's ops knows (buffer_walk.h): the buffers alive and their parts,
 *             what used the blocks that were freed, the host buffers that a pool has
 *
 * The walk leaves out turns after the cut, too, if they know enough (later_turns.c).
 *
 * A shortened plan for which this holds, and in which nothing is found, not even advice on memory, shows that
 * the plan has no errors. It says nothing otherwise.
 */
#ifndef OFFSIM_SIM_VERIFY_CUT_H
#define OFFSIM_SIM_VERIFY_CUT_H

#include "sim/verify/order.h"

/* What takes the place of ops in the state a turn later: by op, one more than the other one, 0: none. */
typedef struct moves {
  uint32_t *used;  /* it used some memory last: the latest that has a turn later */
  uint32_t *known; /* it is known to be done: the earliest that is a turn later */
  uint32_t count;  /* ops that come a turn before the cut */
} moves;

typedef struct rank_cut {
  const plan_repeat *repeat; /* of the whole plan's rank */
  uint32_t at;               /* ops before the cut */
  uint32_t buffers, events;  /* taken and recorded before the cut */
  moves moves;
  bool differs; /* the state at the cut is not that of a turn before */
} rank_cut;

typedef struct shortened {
  const plan *plan;
  rank_cut *cuts;    /* [rank_count] */
  op_gap *gaps;      /* [rank_count], from the cuts on */
  uint32_t left_out; /* turns */
} shortened;

/* The plan, which outlives the result, repeats; each rank keeps at least `turns` before its cut, of which the
 * last is compared with the one before. False: too little of it repeats. */
bool plan_shorten(shortened *s, const plan *p, uint32_t turns, arena *a);

/* The first op of the turn before the cut. */
static inline uint32_t turn_before(const rank_cut *c)
{
  return c->at - c->repeat->ops;
}

/* False: the op does not come a turn before the cut. */
static inline bool move_use(moves *m, uint32_t op, uint32_t to)
{
  if (op >= m->count) return false;
  if (to + 1 > m->used[op]) m->used[op] = to + 1;
  return true;
}

static inline bool move_known(moves *m, uint32_t op, uint32_t to)
{
  if (op >= m->count) return false;
  if (m->known[op] == 0 || to + 1 < m->known[op]) m->known[op] = to + 1;
  return true;
}

/* Whether each use that is known to be done still is, a turn later. */
bool moves_are_safe(const moves *m);

/* Whether the order known at each cut is that of a turn before; adds the moves to those of each rank. */
bool order_repeats(const shortened *s, const plan_order *o, arena *a);

#endif
