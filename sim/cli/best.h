/* What tune and sweep print about the best setting besides its figures. */
#ifndef OFFSIM_SIM_CLI_BEST_H
#define OFFSIM_SIM_CLI_BEST_H

#include "sim/load/load.h"
#include "sim/report/tuned.h"

/* Predicts it once more: `why` and `unsafe`. False after a diag error: another
 * offsim predicted it for a sweep's file, and this one refuses it. */
bool best_find(best_notes *n, const settings *given, const candidate *c, const machine *m,
               uint32_t threads, arena *a, diag *d);

/* Predicts it with slower copies: `slower_copies_ps`. False after a diag error. */
bool best_slacken(best_notes *n, const settings *given, const candidate *c, const machine *m,
                  uint32_t threads, arena *a, diag *d);

/* What the program that runs the settings has to be given, and the options that have to go; once. */
void best_paste(best_notes *n, const load_options *o, const settings *given, const candidate *c,
                const machine *m, arena *a);

#endif
