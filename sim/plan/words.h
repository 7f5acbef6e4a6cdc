/*
 * What the text form knows beyond the names of plan.h: the shape letters of kernels, and which
 * marks belong to a micro-batch.
 */
#ifndef OFFSIM_SIM_PLAN_WORDS_H
#define OFFSIM_SIM_PLAN_WORDS_H

#include "sim/plan/plan.h"

/* The dims of a call, by letter, and after them its scalars: text[i] has length[i] bytes, no NUL after
 * them. */
enum { CALL_LETTERS = PLAN_DIMS + PLAN_SCALARS };
typedef struct shape_letters {
  const char *text[CALL_LETTERS];
  uint32_t length[CALL_LETTERS];
  uint32_t dims;  /* the first of them */
  uint32_t count; /* all */
} shape_letters;

shape_letters kernel_letters(kernel_kind kind);

/* The others have micro-batch and chunk 0, which the text leaves out. */
bool mark_is_of_microbatch(mark_kind kind);

#endif
