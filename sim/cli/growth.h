/*
 * A prediction beside an earlier one, of which --json kept the figures: by how much its memory and its
 * step grew, and gates on that.
 */
#ifndef OFFSIM_SIM_CLI_GROWTH_H
#define OFFSIM_SIM_CLI_GROWTH_H

#include "sim/predict/prediction.h"

typedef struct growth_options {
  const char *against;               /* a file of predict --json; NULL: none is given */
  double peak_percent, step_percent; /* at most; below 0: any */
} growth_options;

/* A gate has a file to compare with. False after a diag error. */
bool growth_check_options(const growth_options *o, diag *d);

/* Of the steady iteration: of the rank with most, and of all. */
typedef struct growth_figures {
  int64_t allocated_bytes, reserved_bytes, step_ps;
} growth_figures;

/* Of the file. False after a diag error. */
bool growth_read(growth_figures *of, const growth_options *o, arena *a, diag *d);

/* Prints a line if `prints`, and broken gates to stderr. False: there are some. */
bool growth_compare(const growth_options *o, const growth_figures *before, const prediction *p,
                    bool prints, arena *a);

#endif
