/* The best settings: a table of their figures, and lines to paste. Private to sim/report. */
#ifndef OFFSIM_SIM_REPORT_RANKING_H
#define OFFSIM_SIM_REPORT_RANKING_H

#include <stdio.h>

#include "sim/base/arena.h"
#include "sim/predict/candidates.h"
#include "sim/sweep/sweep.h"

typedef enum ranking_column {
  RANKING_PLACE,
  RANKING_STEP,
  RANKING_SLOWER, /* than the first, in percent */
  RANKING_TOKENS, /* a second, of each GPU */
  RANKING_MFU,
  RANKING_ALLOCATED,
  RANKING_RESERVED,
  RANKING_PINNED,
  RANKING_SAFE,
  RANKING_COLUMNS
} ranking_column;

typedef struct ranked {
  const sweep_row *row;
  bool unsafe; /* shown by RANKING_SAFE alone */
} ranked;

/* The first is the best; its figures choose the units. `count` is at least 1. */
void ranking_print(const ranked *rows, uint32_t count, const ranking_column *columns,
                   uint32_t column_count, FILE *out, arena *a);

/* The faster one first, of equals the one that reserves less, then the first in the space: as qsort
 * wants it. */
int ranking_order(const sweep_row *a, const sweep_row *b);

/* The rest of a line: what --set takes, quoted where a shell needs it. */
void candidate_sets_print(const candidate *c, FILE *out);

/* A line: a place in the table and what --set takes. */
void ranking_sets_print(uint32_t place, const candidate *c, FILE *out);

#endif
