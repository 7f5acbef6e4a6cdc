/*
 * The fastest settings of a sweep that fit, as a table.
 *
 *     sweep_best b = { .limit = 10 };
 *     sweep_best_add(&b, &row);            // every row, in any order
 *     sweep_table(&b, &space, stdout, a);
 *     sweep_best_release(&b);
 */
#ifndef OFFSIM_SIM_REPORT_SWEEP_H
#define OFFSIM_SIM_REPORT_SWEEP_H

#include "sim/sweep/sweep.h"

typedef struct sweep_best {
  uint32_t limit;  /* rows that are printed */
  sweep_row *rows; /* that fit: the fastest first, of equals the one that reserves least, then the
                    * first in the space; `tried` has its order alone */
  uint32_t count;
  uint32_t verdicts[SWEEP_VERDICTS]; /* of all rows */
} sweep_best;

void sweep_best_add(sweep_best *b, const sweep_row *row);
void sweep_table(const sweep_best *b, const space *of, FILE *out, arena *a);
void sweep_best_release(sweep_best *b);

#endif
