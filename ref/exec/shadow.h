/*
 * Records which bytes of an array have been written: a bit for each.
 */
#ifndef OFFSIM_REF_EXEC_SHADOW_H
#define OFFSIM_REF_EXEC_SHADOW_H

#include <stdint.h>

#include "sim/plan/plan.h"

typedef struct shadow {
  uint64_t *bits;
  int64_t bytes, set; /* number of bytes in the array; number of written bytes */
} shadow;

/* A shadow of unwritten bytes. False: the system refused memory. */
bool shadow_new(shadow *s, int64_t bytes);
void shadow_release(shadow *s);
void shadow_clear(shadow *s);

void shadow_mark(shadow *s, int64_t from, int64_t bytes);
void shadow_mark_view(shadow *s, const plan_view *v);
/* The view's first element that is not completely written, as its index in the array; -1: there is
 * none. */
int64_t shadow_first_unwritten_of(const shadow *s, const plan_view *v);

#endif
