/* What the verifier has found (sim/verify), for people and for programs. */
#ifndef OFFSIM_SIM_REPORT_FINDINGS_H
#define OFFSIM_SIM_REPORT_FINDINGS_H

#include <stdio.h>

#include "sim/predict/safety.h"

/* Findings that say the same of other layers or micro-batches are listed under the first of them.
 * `advice`: list what is only advice too. */
void findings_table(const verified_iteration *iterations, uint32_t count, bool advice, FILE *out,
                    arena *a);

/* The first error, in one line without its end; there is one. */
void findings_first_error(const verified_iteration *iterations, uint32_t count, FILE *out);

/* docs/reference/json.md, "check". */
void findings_json(const verified_iteration *iterations, uint32_t count, FILE *out);

#endif
