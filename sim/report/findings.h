/* What the verifier has found (sim/verify), told to people and to programs. */
#ifndef OFFSIM_SIM_REPORT_FINDINGS_H
#define OFFSIM_SIM_REPORT_FINDINGS_H

#include "sim/verify/verify.h"

/* One verified iteration. */
typedef struct verified_iteration {
  const char *name; /* "warmup", "steady", or the name of a plan's file */
  const verification *verification;
} verified_iteration;

/* Findings that say the same of other layers or micro-batches stand under the first of them.
 * `advice`: list what is only advice too. */
void findings_table(const verified_iteration *iterations, uint32_t count, bool advice, FILE *out,
                    arena *a);

/* The first error, in one line without its end; there is one. */
void findings_first_error(const verified_iteration *iterations, uint32_t count, FILE *out);

/* docs/reference/json.md, "check". */
void findings_json(const verified_iteration *iterations, uint32_t count, FILE *out);

#endif
