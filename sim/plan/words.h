/*
 * Words of the text form that are not names of plan.h: the shape letters of kernels, and which
 * marks belong to a micro-batch.
 */
#ifndef OFFSIM_SIM_PLAN_WORDS_H
#define OFFSIM_SIM_PLAN_WORDS_H

#include "sim/plan/plan.h"

/* The letters of a call's dims, then those of its scalars: text[i] has length[i] bytes, without a
 * NUL. */
enum { CALL_LETTERS = PLAN_DIMS + PLAN_SCALARS };
typedef struct shape_letters {
  const char *text[CALL_LETTERS];
  uint32_t length[CALL_LETTERS];
  uint32_t dims;  /* number of dims */
  uint32_t count; /* number of all letters */
} shape_letters;

shape_letters kernel_letters(kernel_kind kind);

/* The word before dims[COLLECTIVE_DETAIL]. */
const char *collective_detail(collective_kind kind);

/* Other marks have micro-batch and chunk 0, which the text omits. */
bool mark_is_of_microbatch(mark_kind kind);

#endif
