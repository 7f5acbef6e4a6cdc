/*
 * From one iteration to the next: matches the buffers that the last one has left with the residents
 * of the next, by class, bytes, name and site, in order of allocation.
 */
#ifndef OFFSIM_SIM_EXEC_RESIDENTS_H
#define OFFSIM_SIM_EXEC_RESIDENTS_H

#include "sim/exec/stage.h"

/* The buffers of a rank at the end of an iteration. */
typedef struct survivors {
  const stage *stage; /* of the last plan; NULL: none has run */
  bool *there;        /* by buffer: it is alive, and no resident has taken it */
  uint32_t cursor;    /* where the next search begins, because both plans mostly have the same
                       * order */
} survivors;

/* The survivor that becomes the resident of the plan `now`, NO_BUFFER: there is none. */
uint32_t survivors_take(survivors *s, const plan *now, const plan_buffer *resident);

#endif
