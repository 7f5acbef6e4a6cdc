/* What tune and sweep say of the best setting besides its figures. */
#ifndef OFFSIM_SIM_CLI_BEST_H
#define OFFSIM_SIM_CLI_BEST_H

#include "sim/report/tuned.h"

/* Predicts it once more, for what bounds it and whether it is safe. False after a diag error: another
 * offsim predicted it for a sweep's file, and this one refuses it. */
bool best_find(best_notes *n, const settings *given, const candidate *c, const machine *m,
               uint32_t threads, arena *a, diag *d);

/* Only the flags and what is to be left out; for a setting of frameworks beside offsim's own. */
void best_paste(best_notes *n, const settings *given, const candidate *c, arena *a);

#endif
