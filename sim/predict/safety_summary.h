/* What the verifier finds in the plans of a run, in one line. */
#ifndef OFFSIM_SIM_PREDICT_SAFETY_SUMMARY_H
#define OFFSIM_SIM_PREDICT_SAFETY_SUMMARY_H

#include "sim/config/settings.h"
#include "sim/plan/plan.h"

enum { SAFETY_ITERATIONS = 2 }; /* the first, a later one */

typedef struct safety_summary {
  uint64_t errors[SAFETY_ITERATIONS];
  const char *first_kind; /* of the first error: "block_reused"; NULL: none */
  uint32_t first_rank;
} safety_summary;

static inline bool summary_is_safe(const safety_summary *s)
{
  return s->first_kind == NULL;
}

/* Of settings that compile; `later`: their plan of a steady iteration, or NULL. */
safety_summary safety_summarize(const settings *s, const plan *later);

#endif
