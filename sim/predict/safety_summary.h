/* What the verifier finds in the plans of a run, in one line. */
#ifndef OFFSIM_SIM_PREDICT_SAFETY_SUMMARY_H
#define OFFSIM_SIM_PREDICT_SAFETY_SUMMARY_H

#include "sim/base/diag.h"
#include "sim/config/settings.h"
#include "sim/plan/plan.h"

enum { SAFETY_ITERATIONS = 2 }; /* the first, a later one */

/* ... in the plan of one iteration. */
typedef struct plan_safety {
  uint64_t errors;
  const char *first_kind; /* of the first error: "block_reused"; NULL: none */
  uint32_t first_rank;
} plan_safety;

typedef struct safety_summary {
  uint64_t errors[SAFETY_ITERATIONS];
  const char *first_kind; /* of the first error; NULL: none */
  uint32_t first_rank;
} safety_summary;

static inline bool summary_is_safe(const safety_summary *s)
{
  return s->first_kind == NULL;
}

/* `before`: the plan of the iteration before it, or NULL. */
plan_safety plan_safety_of(const plan *p, const plan *before, uint32_t threads);

safety_summary safety_summary_of(const plan_safety *first, const plan_safety *later);

/* Whether the plans of both iterations are safe; stops at the first that is not. False after a diag
 * error, too. */
bool settings_are_safe(const settings *s, diag *d);

#endif
