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

/* SARIF 2.1.0 (docs/reference/verifier.md, "Code scanning"). `scenario`: the file that findings of
 * compiled plans are reported in. */
void findings_sarif(const verified_iteration *iterations, uint32_t count, const char *scenario,
                    bool advice, FILE *out);

/* Would a wait of the second op's stream for the first's mend it? */
bool finding_lacks_edge(const verification *v, const finding *f);

/* An op's line of the plan as a JSON string. */
void findings_op_string(FILE *out, const plan *p, uint32_t rank, uint32_t op);

/* docs/reference/json.md, "check". */
void findings_json(const verified_iteration *iterations, uint32_t count, FILE *out);

#endif
