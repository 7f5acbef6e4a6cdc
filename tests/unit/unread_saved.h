/*
 * Does what autograd keeps serve the backward? A buffer that is saved and read by no op of a
 * backward phase, neither where it is nor where it has been copied to, was kept for nothing.
 */
#ifndef OFFSIM_TESTS_UNIT_UNREAD_SAVED_H
#define OFFSIM_TESTS_UNIT_UNREAD_SAVED_H

#include "sim/plan/plan.h"

/* Of a pipeline rank: the buffers of class SAVED that no backward reads, in order of allocation,
 * into `unread` (room for all buffers). Returns how many. */
uint32_t unread_saved(const plan *p, uint32_t rank, uint32_t *unread);

#endif
