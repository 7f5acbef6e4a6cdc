/* Gates of compare on figures in percent: sizes of errors, R. */
#ifndef OFFSIM_SIM_CLI_PERCENT_GATES_H
#define OFFSIM_SIM_CLI_PERCENT_GATES_H

#include "sim/base/arena.h"
#include "sim/report/gates.h"

void gate_put(gate_list *g, const char *name, bool held, const char *finding);
/* The magnitude of the error of `of` is at most `limit` percent. */
void gate_put_error(gate_list *g, const char *name, const char *of, int64_t ppm, double limit,
                    arena *a);
/* R is at least `limit` percent. */
void gate_put_ratio(gate_list *g, const char *name, int64_t ppm, double limit, arena *a);

#endif
