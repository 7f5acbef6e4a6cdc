/*
 * Independent pieces of work, dealt to the threads of all processes; process 0 takes the results.
 *
 *     each thread:   pieces <- next;  work;  take                        (process 0)
 *     each thread:   pieces <- process 0;  work;  results -> process 0   (the others)
 *
 * Pieces are dealt in ascending order to threads that are free, several neighbours at a time and fewer
 * towards the end, so which thread works on one depends on the clock. What a piece's result is must not.
 */
#ifndef OFFSIM_SIM_WORLD_DEAL_H
#define OFFSIM_SIM_WORLD_DEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/arena.h"

typedef struct deal {
  uint32_t count;   /* pieces: the same in all processes */
  const bool *done; /* process 0: by piece, left out; NULL: none */
  uint32_t threads; /* of this process; at least 1 */
  void *context;
  /* Called by any thread. Returns the result, of *bytes, in memory that lasts as long as `a`; NULL
   * ends the deal. */
  const void *(*work)(void *context, uint32_t piece, size_t *bytes, arena *a);
  /* Process 0, one call at a time, by any thread. False ends the deal. */
  bool (*take)(void *context, uint32_t piece, const void *result, size_t bytes);
  /* Process 0, after some calls of `take`: a thread that has taken gets its next piece only after a
   * call that began later. One call at a time, beside calls of `take`. False ends the deal. May be NULL. */
  bool (*settle)(void *context);
} deal;

/* All processes call it. False where `work`, `take` or `settle` ended it; the process then calls
 * world_abort, for the others may wait. */
bool deal_run(const deal *of);

/* The simple form: work(context, i) fills item i of `items`, of `item_bytes` each, which hold no
 * pointers; afterwards all processes have all items. False after the first false of `work`. */
typedef bool deal_fill(void *context, uint32_t index);
bool deal_items(void *items, uint32_t count, size_t item_bytes, uint32_t threads, deal_fill *work,
                void *context);

#endif
