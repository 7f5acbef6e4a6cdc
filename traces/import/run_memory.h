/*
 * The memory of a real run, from its allocator's history and the blocks at its end: who holds what
 * at which time. Exact in both measures if the record has every event (a ring buffer drops the
 * oldest, which then count as held from the begin):
 *
 *   allocated  a block counts until it is freed: torch.cuda.memory_allocated
 *   active     a block counts until no stream uses it any more
 *
 * A block that was freed within the record has its requested size, rounded up to 512 bytes; a large
 * one may have been up to a MiB larger (a tail that the allocator did not split off).
 */
#ifndef OFFSIM_TRACES_IMPORT_RUN_MEMORY_H
#define OFFSIM_TRACES_IMPORT_RUN_MEMORY_H

#include "traces/import/real_run.h"

/* A block from its allocation to its end, both as indexes into the run's events. */
typedef struct block_life {
  int64_t bytes;
  uint32_t stack;
  int64_t begin;       /* -1: before the record */
  int64_t freed, done; /* the number of events: not within the record */
} block_life;

/* All blocks at a peak that one line of code allocated. */
typedef struct memory_owner {
  uint32_t frame; /* REAL_NONE: allocated before the record, or without a stack */
  uint32_t stack; /* of its largest block */
  uint32_t count;
  int64_t bytes;
} memory_owner;

typedef struct memory_peak {
  int64_t bytes, time_ns;
  int64_t event;        /* the one that reached it; -1: before all of them */
  memory_owner *owners; /* the most bytes first */
  uint32_t owner_count;
} memory_peak;

typedef struct run_memory {
  const real_run *run;
  block_life *lives;
  uint32_t life_count;
  int64_t *allocated_bytes; /* [events + 1]: before each event, then at the end */
  memory_peak allocated, active;
  int64_t begin_bytes, end_bytes; /* allocated */
  int64_t reserved_peak_bytes;
} run_memory;

/* Of a finished run with a snapshot. Everything is in the arena. */
run_memory run_memory_of(const real_run *r, arena *a);

/* Whether a block counts as allocated after an event; -1: before all of them. */
bool block_lives_at(const block_life *l, int64_t event);

/* Allocated bytes at a time: after the events up to then. */
int64_t run_memory_at(const run_memory *m, int64_t time_ns);

/* The frame that a block of this stack is attributed to: the innermost outside PyTorch. REAL_NONE:
 * the stack is empty. */
uint32_t run_memory_owner(const real_run *r, uint32_t stack);

#endif
