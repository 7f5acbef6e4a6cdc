/* `offsim predict --plan FILE`: a plan that was given as text, on a machine. */
#ifndef OFFSIM_SIM_CLI_PREDICT_PLAN_H
#define OFFSIM_SIM_CLI_PREDICT_PLAN_H

#include "sim/cli/load.h"
#include "sim/report/findings.h"

/* False after a diag error, or for a plan that is not safe, of which the first error is told. */
bool predict_plan_text(const char *path, const load_options *o, bool json, bool *unsafe, arena *a,
                       diag *d);

/* One line to stderr. */
void tell_unsafe(const verified_iteration *iterations, uint32_t count);

#endif
