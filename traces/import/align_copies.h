/*
 * Copies of one direction, predicted and measured, aligned (real_comparison.h). Private to
 * traces/import.
 *
 * Within a pass, the longest common sequence of sizes is in order. What it leaves is paired by size,
 * first within the pass (reordered), then across passes (early or late). A pass in which more than
 * 4000 copies differ in the middle is paired by size alone.
 */
#ifndef OFFSIM_TRACES_IMPORT_ALIGN_COPIES_H
#define OFFSIM_TRACES_IMPORT_ALIGN_COPIES_H

#include "traces/import/real_comparison.h"

typedef struct listed_copy {
  int64_t bytes;
  uint32_t pass; /* REAL_NONE: unknown, so that all are of one pass */
  uint32_t at;   /* the op, or the span */
  bool optional; /* a small one among others' work: without a partner, it is none of offloading */
} listed_copy;

typedef struct copy_list {
  listed_copy *items;
  uint32_t count, capacity;
} copy_list;

/* Fills `copies`, `copy_count` and `found`; optional copies with a partner are added to the measured
 * counts. */
void align_copies(const copy_list *predicted, const copy_list *measured, direction_comparison *d,
                  arena *a);

#endif
