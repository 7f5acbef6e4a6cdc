/*
 * The chunks of all ranks, lowered: the same in every iteration, and for settings that differ only in keys
 * that policies alone read.
 *
 *     lowered_ranks l = lower_ranks(s, threads);
 *     compile_lowered(&first, s, &l, ITERATION_WARMUP, 1, a, d);
 *     compile_lowered(&steady, s, &l, ITERATION_STEADY, 1, a, d);
 *     lowered_ranks_release(&l);                 // the plans do not refer to it
 */
#ifndef OFFSIM_SIM_COMPILE_LOWERED_RANKS_H
#define OFFSIM_SIM_COMPILE_LOWERED_RANKS_H

#include "sim/compile/program.h"

/* Its rows are in tables of its own: they come to the plan's when the rank is compiled. */
typedef struct lowered_rank {
  plan tables;
  chunk_program **programs; /* by chunk */
  arena memory;
} lowered_rank;

typedef struct lowered_ranks {
  uint32_t rank_count, chunk_count;
  lowered_rank *ranks;
  arena memory; /* of this array */
} lowered_ranks;

/* These settings for all that have their chunks in common with `s`: they do not say how much leaves. */
settings lowered_settings(const settings *s);

/* On up to `threads` threads, at least 1; the result does not depend on them. */
lowered_ranks lower_ranks(const settings *s, uint32_t threads);
void lowered_ranks_release(lowered_ranks *l);

/* The rank's programs, by chunk: copies with rows of `p`, in `a`, to be released. Ranks come in order. */
chunk_program **lowered_programs(const lowered_ranks *l, uint32_t rank, plan *p, arena *a);

#endif
