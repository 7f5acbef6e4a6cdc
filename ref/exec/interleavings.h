/*
 * Do legal orders of a plan's ops agree? Runs a plan without arithmetic in program order and in
 * orders that seeds draw, and compares what each op has written and what each buffer holds at last.
 */
#ifndef OFFSIM_REF_EXEC_INTERLEAVINGS_H
#define OFFSIM_REF_EXEC_INTERLEAVINGS_H

#include "ref/exec/exec.h"

typedef struct interleavings_result {
  bool agree;
  bool in_program_order; /* what is wrong shows in program order already */
  uint64_t seed;         /* the first that does not agree */
  uint64_t run;          /* how many seeds were run */
  const char *finding;   /* what went wrong, or the first op that differs; NULL: they agree */
} interleavings_result;

/* Seeds first, first + 1, ..., of which there are `count`. `finding` is from `a`. `before`: the
 * iteration before it, whose pools of page-locked buffers it finds; NULL: none. */
interleavings_result ref_interleavings(const plan *p, const plan *before, uint64_t first,
                                       uint64_t count, arena *a);

#endif
