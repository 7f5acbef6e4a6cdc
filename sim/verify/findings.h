/* Shared by the files of the verifier. */
#ifndef OFFSIM_SIM_VERIFY_FINDINGS_H
#define OFFSIM_SIM_VERIFY_FINDINGS_H

#include "sim/verify/cut.h"
#include "sim/verify/verify.h"

/* Adds the races on buffers of one rank. */
void find_buffer_races(verification *v, uint32_t rank, const plan *before, arena *a);

/* Whether the walk over a rank of a shortened plan has nothing to report, and knows at the cut what it knew
 * a turn before; else c->differs. `v` is of that plan, `before` not shortened; the order has added its
 * moves. */
bool has_no_buffer_races(verification *v, uint32_t rank, const plan *before, rank_cut *c, arena *a);

/* Adds the deadlocks and the collectives that a rank never issues, and sets `stuck`. */
void find_deadlocks(verification *v, arena *a);

static inline bool is_error(finding_kind kind)
{
#define X(name, text, severity, meaning)                                                           \
  | (SEVERITY_##severity == SEVERITY_ERROR ? 1u << FINDING_##name : 0u)
  const uint32_t errors = 0 VERIFY_FINDINGS(X);
#undef X
  return errors >> kind & 1;
}

static inline void add_finding(verification *v, finding f)
{
  *ARRAY_PUSH(&v->findings) = f;
}

#endif
