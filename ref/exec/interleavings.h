/*
 * Checks that legal orders of a plan's ops agree: runs a plan without arithmetic in program order
 * and in orders that seeds draw, and compares what each op has written and the final contents of
 * each buffer.
 */
#ifndef OFFSIM_REF_EXEC_INTERLEAVINGS_H
#define OFFSIM_REF_EXEC_INTERLEAVINGS_H

#include "ref/exec/exec.h"

typedef struct interleavings_result {
  bool agree;
  bool in_program_order; /* program order already fails */
  uint64_t seed;         /* the first seed that disagrees */
  uint64_t run;          /* number of seeds that were run */
  const char *finding;   /* the failure, or the first op that differs; NULL: they agree */
} interleavings_result;

/* Runs `count` seeds: first, first + 1, ... `finding` is from `a`. `before`: the previous
 * iteration, which left its pools of page-locked buffers; NULL: none. */
interleavings_result ref_interleavings(const plan *p, const plan *before, uint64_t first,
                                       uint64_t count, arena *a);

#endif
