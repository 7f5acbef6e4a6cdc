/* What the verifier finds in the plans of a run, in one line. */
#ifndef OFFSIM_SIM_PREDICT_SAFETY_SUMMARY_H
#define OFFSIM_SIM_PREDICT_SAFETY_SUMMARY_H

#include "sim/base/diag.h"
#include "sim/config/settings.h"
#include "sim/plan/plan.h"

enum { SAFETY_ITERATIONS = 2 }; /* the first, a later one */

/* The first error. */
typedef struct first_error {
  const char *kind; /* "block_reused"; NULL: there is none */
  uint32_t rank;
  char where[96]; /* "attention output, layer 0 self_attention.core_attention": what it is about */
} first_error;

/* ... in the plan of one iteration. */
typedef struct plan_safety {
  uint64_t errors;
  first_error first;
} plan_safety;

typedef struct safety_summary {
  uint64_t errors[SAFETY_ITERATIONS];
  first_error first;
} safety_summary;

static inline bool summary_is_safe(const safety_summary *s)
{
  return s->first.kind == NULL;
}

/* `before`: the plan of the iteration before it, or NULL. */
plan_safety plan_safety_of(const plan *p, const plan *before, uint32_t threads);

safety_summary safety_summary_of(const plan_safety *first, const plan_safety *later);

/* Of the plans of both iterations; ends with the first that is not safe. None after a diag error. */
first_error settings_first_error(const settings *s, diag *d);

#endif
