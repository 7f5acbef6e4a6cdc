/*
 * From one iteration to the next: which buffer that the last one has left becomes which resident of
 * the next. They find each other by class, bytes, name and place, in order of allocation.
 */
#ifndef OFFSIM_SIM_EXEC_RESIDENTS_H
#define OFFSIM_SIM_EXEC_RESIDENTS_H

#include "sim/exec/stage.h"

/* What a rank has when an iteration is over. */
typedef struct survivors {
  const stage *stage; /* of the plan that has run; NULL: nothing has */
  bool *there;        /* by buffer; cleared when a resident takes it */
  uint32_t cursor;    /* where the next search begins: both plans mostly have the same order */
} survivors;

/* The survivor that becomes the resident of the plan `now`, NO_BUFFER: there is none. */
uint32_t survivors_take(survivors *s, const plan *now, const plan_buffer *resident);

#endif
